"""Who may import whom: read from the sources, so that no import has to be carried out for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import conveyor_actors

PACKAGE = "conveyor_actors"
ROOT = Path(conveyor_actors.__file__).parent

#: From left to right: a module imports from its own group and from those left of it.
LAYERS = (
    {"errors", "units", "model", "ipc", "text"},
    {"data", "packing", "wire", "config"},
    {"options", "handlers", "box"},
    {"store.tables"},
    {"engine"},
    {"supervisor"},
)
#: These stand beside the layers: besides themselves they import only what is left of `store.tables`.
OUTSIDE = ("worker", "client", "cli")
STORE_PARTS = ("store.journal", "store.reserve")
#: What `engine` must not know: it gets time and chance as arguments, and a transaction passed in.
NOT_IN_THE_ENGINE = {
    "asyncio", "lmdb", "logging", "multiprocessing", "os", "psutil", "random", "secrets", "select", "signal", "socket",
    "subprocess", "threading", "time", "zmq",
}  # fmt: skip


class Import(NamedTuple):
    """`module` and `target` are named without the package; `target` of others is their top name."""

    module: str
    target: str
    ours: bool
    line: int

    def __str__(self) -> str:
        return f"{PACKAGE}.{self.module}, line {self.line}, imports {self.target}"


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports_of(module: str, path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively in line {node.lineno}: write the whole name"
            assert node.module is not None
            # `from package import module` means the module.
            targets = [
                f"{node.module}.{alias.name}" if is_module(f"{node.module}.{alias.name}") else node.module
                for alias in node.names
            ]
        else:
            continue
        for target in targets:
            top, _, rest = target.partition(".")
            yield Import(module, rest if top == PACKAGE else top, top == PACKAGE, node.lineno)


def is_module(name: str) -> bool:
    return name.startswith(f"{PACKAGE}.") and name.removeprefix(f"{PACKAGE}.") in MODULES


IMPORTS = [found for module, path in MODULES.items() for found in imports_of(module, path)]
OURS = [found for found in IMPORTS if found.ours and found.target]


def within(module: str, group: str) -> bool:
    return module == group or module.startswith(f"{group}.")


def layer_of(module: str) -> int | None:
    for index, layer in enumerate(LAYERS):
        if any(within(module, group) for group in layer):
            return index
    return None


TABLES_LAYER = layer_of("store.tables")


def outside_of(module: str) -> str | None:
    return next((group for group in OUTSIDE if within(module, group)), None)


def left_to_right(found: Import) -> bool:
    """A layer imports from its own group and from those left of it."""
    here, there = layer_of(found.module), layer_of(found.target)
    return here is None or there is None or there <= here


def stays_outside(found: Import) -> bool:
    """worker, client and cli import themselves and what is left of store.tables; never store, engine, supervisor."""
    group = outside_of(found.module)
    if group is None or within(found.target, group):
        return True
    there = layer_of(found.target)
    assert TABLES_LAYER is not None
    return (there is not None and there < TABLES_LAYER) or (group == "cli" and within(found.target, "client"))


def leaves_the_outside_alone(found: Import) -> bool:
    """No layer imports worker, client or cli; supervisor.spawner alone imports worker, to fork it."""
    group = outside_of(found.target)
    if group is None or outside_of(found.module) is not None or found.module == "":
        return True
    return group == "worker" and found.module == "supervisor.spawner"


def worker_is_private(found: Import) -> bool:
    """Only worker itself, supervisor.spawner and, for JobContext, the public __init__ import worker."""
    if not within(found.target, "worker") or within(found.module, "worker"):
        return True
    return found.module == "supervisor.spawner" or (found.module == "" and found.target == "worker.context")


def store_is_private(found: Import) -> bool:
    """store.lmdb_store is imported by the supervisor alone, and imports its parts and nothing right of store.tables.

    Its parts (the journal, the reserve) import nothing of ours, and nobody else imports them.
    """
    if found.module in STORE_PARTS:
        return False
    if found.target in STORE_PARTS:
        return found.module == "store.lmdb_store"
    if found.module == "store.lmdb_store":
        there = layer_of(found.target)
        assert TABLES_LAYER is not None
        return there is not None and there <= TABLES_LAYER
    return not within(found.target, "store.lmdb_store") or within(found.module, "supervisor")


def engine_is_deterministic(found: Import) -> bool:
    """engine imports no clock, no chance, no socket, no thread, no log, no store."""
    return not within(found.module, "engine") or found.ours or found.target not in NOT_IN_THE_ENGINE


def one_importer_of_lmdb(found: Import) -> bool:
    """store.lmdb_store alone imports lmdb."""
    return found.ours or found.target != "lmdb" or found.module == "store.lmdb_store"


RULES = [
    left_to_right,
    stays_outside,
    leaves_the_outside_alone,
    worker_is_private,
    store_is_private,
    engine_is_deterministic,
    one_importer_of_lmdb,
]


def test_every_module_has_its_place() -> None:
    known = {"", "store", "store.lmdb_store", *STORE_PARTS}
    lost = [m for m in MODULES if m not in known and layer_of(m) is None and outside_of(m) is None]
    assert lost == [], "say in this test where they stand"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_import_law_holds(rule: object) -> None:
    broken = [str(found) for found in (IMPORTS if rule in RULES[-2:] else OURS) if not rule(found)]  # type: ignore[operator]
    assert broken == [], f"the rule: {rule.__doc__}"


@pytest.mark.parametrize(
    ("rule", "module", "target"),
    [
        (left_to_right, "wire", "engine.tick"),
        (left_to_right, "engine.tick", "supervisor.loop"),
        (left_to_right, "units", "wire"),
        (stays_outside, "client.queue", "store.tables"),
        (stays_outside, "worker.main", "engine.credits"),
        (stays_outside, "client.queue", "supervisor.loop"),
        (stays_outside, "client.queue", "worker.context"),
        (leaves_the_outside_alone, "supervisor.loop", "worker.main"),
        (leaves_the_outside_alone, "engine.tick", "client.queue"),
        (worker_is_private, "cli.main", "worker.context"),
        (worker_is_private, "", "worker.main"),
        (store_is_private, "engine.tick", "store.lmdb_store"),
        (store_is_private, "store.lmdb_store", "engine.tick"),
        (store_is_private, "supervisor.loop", "store.journal"),
        (store_is_private, "store.journal", "units"),
    ],
)
def test_a_broken_rule_is_found(rule: object, module: str, target: str) -> None:
    assert not rule(Import(module, target, True, 1))  # type: ignore[operator]


@pytest.mark.parametrize("name", sorted(NOT_IN_THE_ENGINE))
def test_a_clock_in_the_engine_is_found(name: str) -> None:
    assert not engine_is_deterministic(Import("engine.tick", name, False, 1))


def test_only_the_store_may_know_lmdb() -> None:
    assert not one_importer_of_lmdb(Import("supervisor.loop", "lmdb", False, 1))
    assert any(found.target == "lmdb" for found in IMPORTS)
