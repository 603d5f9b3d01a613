"""What the README shows is what the code has."""

from __future__ import annotations

from pathlib import Path

from conveyor_actors.engine.transitions import mermaid

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_diagram_in_the_readme_is_made_from_the_table_of_transitions() -> None:
    assert f"```mermaid\n{mermaid()}\n```" in README.read_text()
