"""Text from jobs, made fit to be shown to people: it may hold escape sequences, which are shown then and not obeyed."""

from __future__ import annotations

from typing import Final

_CONTROLS: Final = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160))}
_BUT_LINES: Final = {code: shown for code, shown in _CONTROLS.items() if chr(code) not in "\n\t"}


def on_one_line(text: str) -> str:
    return text.translate(_CONTROLS)


def in_lines(text: str) -> str:
    """Lines and tabs stay."""
    return text.translate(_BUT_LINES)
