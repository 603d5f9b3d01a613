"""Where config values come from: a file, the environment over it, the given options over both.

Knows the names of the keys and nothing of what they mean. Each setting remembers its source, so that an error
can name the file or the variable to change; a key nobody knows is never passed over in silence.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec

from conveyor_actors.errors import InvalidConfig, nearest

ENVIRONMENT_PREFIX: Final = "CONVEYOR_"
#: How alike two words must be for one to be the other misspelt.
_MISSPELT: Final = 0.8
OVERRIDES_SOURCE: Final = "the given options"

#: Sections that hold a table for each name: [pools.default], where [supervisor] holds keys.
NAMED_SECTIONS: Final = frozenset({"pools", "queues", "schedules"})


class Setting(msgspec.Struct, frozen=True):
    """One value with its source. `readings` are the ways to understand it, the likeliest first."""

    source: str
    readings: tuple[Any, ...]


Table = tuple[str, ...]
Settings = dict[Table, dict[str, Setting]]
KnownKeys = Mapping[str, Collection[str]]


def read_document(path: Path) -> dict[str, Any]:
    """The content of a TOML file, or of a JSON file of the same shape."""
    try:
        content = path.read_text(encoding="utf-8")
        document = json.loads(content) if path.suffix == ".json" else tomllib.loads(content)
    except FileNotFoundError:
        raise InvalidConfig(
            f"{path}: there is no such config file. Check the path, or make one: every key has a default, so "
            'an empty file will do, and imports = ["myapp.tasks"] under [pools.default] names your handlers'
        ) from None
    except OSError as error:
        raise InvalidConfig(f"{path}: the config file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path}: the config file is not UTF-8 text, at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"{path}: this is not valid TOML: {error}") from None
    except json.JSONDecodeError as error:
        raise InvalidConfig(
            f"{path}: this is not valid JSON: {error.msg} (at line {error.lineno}, column {error.colno})"
        ) from None
    if not isinstance(document, dict):
        raise InvalidConfig(f"{path}: the file has to hold an object with sections such as 'supervisor'")
    return document


def from_document(document: Mapping[str, Any], source: str, known: KnownKeys) -> Settings:
    """The settings of nested tables. None stands for a key that was left out."""
    settings: Settings = {}
    _check_text(document, source)
    for section, content in document.items():
        if section not in known:
            raise InvalidConfig(f"{source}: there is no section {section!r}{_section_hint(section, known)}")
        if content is None:
            continue
        if not isinstance(content, Mapping):
            raise InvalidConfig(f"{source}: {section} = {content!r} is not allowed: use a table, [{section}]")
        for table, keys in _tables(section, content, source):
            _check_keys(table, keys, known[section], source)
            settings[table] = {key: Setting(source, (value,)) for key, value in keys.items() if value is not None}
    return settings


def from_environment(environ: Mapping[str, str], known: KnownKeys, base: Settings) -> Settings:
    """The settings of `CONVEYOR_<SECTION>_<KEY>`, other variables left alone. `base` has the names in use."""
    settings: Settings = {}
    for variable in sorted(environ):
        _refuse_misspelt_section(variable, list(known))
        for section in known:
            prefix = f"{ENVIRONMENT_PREFIX}{section.upper()}_"
            if variable.startswith(prefix):
                rest = variable.removeprefix(prefix).lower()
                names = [table[1] for table in base if table[0] == section and len(table) > 1]
                found = _locate(variable, section, rest, known[section], names)
                if found is None:
                    raise InvalidConfig(_unknown_variable(variable, section, known[section], names))
                table, key = found
                readings = _readings(environ[variable])
                settings.setdefault(table, {})[key] = Setting(f"${variable}", readings)
    return settings


def from_overrides(overrides: Mapping[str, object], known: KnownKeys) -> Settings:
    """The settings of dotted keys, such as `pools.default.workers`; text is read as that of a variable.

    None stands for an option not given.
    """
    settings: Settings = {}
    for dotted_key, value in overrides.items():
        section, _, rest = dotted_key.partition(".")
        if section not in known:
            hint = _section_hint(section, known)
            raise InvalidConfig(f"{OVERRIDES_SOURCE}: {dotted_key!r} is in no known section{hint}")
        name, _, key = rest.rpartition(".")
        if not key or bool(name) != (section in NAMED_SECTIONS):
            form = f"{section}.NAME.KEY" if section in NAMED_SECTIONS else f"{section}.KEY"
            raise InvalidConfig(f"{OVERRIDES_SOURCE}: {dotted_key!r} is not a key: use {form}")
        table = (section, name) if name else (section,)
        _check_keys(table, [key], known[section], OVERRIDES_SOURCE)
        if value is not None:
            readings = _readings(value) if isinstance(value, str) else (value,)
            settings.setdefault(table, {})[key] = Setting(OVERRIDES_SOURCE, readings)
    return settings


def overlay(*layers: Settings) -> Settings:
    """All settings; where two layers have the same key, the later one's."""
    merged: Settings = {}
    for layer in layers:
        for table, keys in layer.items():
            merged[table] = {**merged.get(table, {}), **keys}
    return merged


def dotted(table: Iterable[str], *key: str) -> str:
    """The key as one would write it in TOML: `queues."my images".rate`."""
    parts = (*table, *key)
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part) for part in parts)


def _check_text(content: Mapping[Any, Any], source: str) -> None:
    """What is written in Python may have any keys."""
    for key, value in content.items():
        if not isinstance(key, str):
            raise InvalidConfig(f"{source}: the key {key!r} is not allowed: keys are text")
        if isinstance(value, Mapping):
            _check_text(value, source)


def _tables(section: str, content: Mapping[str, Any], source: str) -> Iterable[tuple[Table, Mapping[str, Any]]]:
    if section not in NAMED_SECTIONS:
        yield (section,), content
        return
    for name, keys in content.items():
        if keys is None:
            continue
        if not isinstance(keys, Mapping):
            raise InvalidConfig(
                f"{source}: {dotted((section, name))} = {keys!r} is not allowed: [{section}] holds a table "
                f"for each name; write {name} under [{section}.NAME]"
            )
        yield (section, name), keys


def _check_keys(table: Table, keys: Iterable[str], known: Collection[str], source: str) -> None:
    for key in keys:
        if key not in known:
            hint = nearest(key, sorted(known)) or f"; [{dotted(table)}] has {', '.join(known)}"
            raise InvalidConfig(f"{source}: there is no key {dotted(table, key)}{hint}")


def _section_hint(section: str, known: KnownKeys) -> str:
    homes = [name for name, keys in known.items() if section in keys]
    if homes:
        written = f"[{homes[0]}.NAME]" if homes[0] in NAMED_SECTIONS else f"[{homes[0]}]"
        return f": {section} is a key of {written}"
    return nearest(section, list(known)) or f"; there are {', '.join(known)}"


def _locate(
    variable: str, section: str, rest: str, keys: Collection[str], names: list[str]
) -> tuple[Table, str] | None:
    if section not in NAMED_SECTIONS:
        return ((section,), rest) if rest in keys else None
    splits = [(rest.removesuffix(f"_{key}"), key) for key in keys if rest.endswith(f"_{key}")]
    candidates = [(_same_name(variable, word, names), word, key) for word, key in splits if word]
    if not candidates:
        return None
    # A name that is in use decides; else the longest key: MY_GROUP_RATE is the group_rate of `my`.
    name, word, key = max(candidates, key=lambda each: (each[0] is not None, len(each[2])))
    return (section, name if name is not None else word), key


def _same_name(variable: str, word: str, names: list[str]) -> str | None:
    same = [name for name in names if re.sub(r"[^a-z0-9]", "_", name.lower()) == word]
    if len(same) > 1:
        meanings = " or ".join(repr(name) for name in same)
        raise InvalidConfig(f"${variable} could mean {meanings}: set the key in the file instead")
    return same[0] if same else None


def _refuse_misspelt_section(variable: str, sections: list[str]) -> None:
    """Other variables may begin like ours; one that is a letter off a section is a mistake."""
    word, _, key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("_")
    if key and variable.startswith(ENVIRONMENT_PREFIX) and word not in sections:
        meant = get_close_matches(word, sections, n=1, cutoff=_MISSPELT)
        if meant:
            name = f"{ENVIRONMENT_PREFIX}{meant[0].upper()}_{key.upper()}"
            raise InvalidConfig(f"${variable}: there is no section {word} (did you mean ${name}?)")


def _unknown_variable(variable: str, section: str, keys: Collection[str], names: list[str]) -> str:
    prefix = f"{ENVIRONMENT_PREFIX}{section.upper()}_"
    if section in NAMED_SECTIONS:
        words = [re.sub(r"[^A-Z0-9]", "_", name.upper()) for name in names] or ["DEFAULT"]
        possible = [f"{prefix}{word}_{key.upper()}" for word in words for key in keys]
        form = f"{prefix}<NAME>_<KEY>"
    else:
        possible = [f"{prefix}{key.upper()}" for key in keys]
        form = f"{prefix}<KEY>"
    hint = nearest(variable, possible)
    return f"${variable}: there is no such key{hint}. Use {form}, the key being one of {', '.join(keys)}"


def _readings(content: str) -> tuple[Any, ...]:
    """As TOML where it is TOML, and else or also as plain text: a token may consist of digits."""
    try:
        document = tomllib.loads(f"value = {content}")
    except tomllib.TOMLDecodeError:
        return (content,)
    return (document["value"], content) if document.keys() == {"value"} else (content,)
