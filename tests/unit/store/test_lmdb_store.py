"""The store below the tables: transactions, growing, opening."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conveyor_actors.engine.engine import Engine
from conveyor_actors.engine.inputs import ClientSays, Moment
from conveyor_actors.engine.memory import PoolSettings, Settings
from conveyor_actors.errors import StoreError
from conveyor_actors.store.lmdb_store import LmdbStore, MapFull
from conveyor_actors.store.tables import TABLES, number_key
from conveyor_actors.wire import AddJobs, NewJob

Opening = Callable[..., LmdbStore]
SMALL = 1 << 17
SETTINGS = Settings({"pool": PoolSettings()}, {}, 1 << 20)


@pytest.fixture
def opening(tmp_path: Path) -> Iterator[Opening]:
    """Opens the store of this test, again and again if need be."""
    opened: list[LmdbStore] = []

    def open(**how: object) -> LmdbStore:
        for store in opened:
            store.close()
        opened.clear()
        opened.append(LmdbStore(tmp_path / "store", **{"durability": "relaxed", **how}))  # type: ignore[arg-type]
        return opened[-1]

    yield open
    for store in opened:
        store.close()


def count(store: LmdbStore, table: str) -> int:
    rows = sum(1 for _ in getattr(store.begin(), table).cursor())
    store.abort()
    return rows


def fill(store: LmdbStore, rows: int, start: int = 0) -> None:
    tables = store.begin()
    for number in range(start, start + rows):
        tables.payloads.put(number_key(number), bytes(1_000))
    store.commit()


@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
def test_what_was_committed_is_there_when_the_store_is_opened_again(opening: Opening, durability: str) -> None:
    store = opening(durability=durability)
    fill(store, 3)
    store.sync()
    assert count(opening(), "payloads") == 3


def test_what_was_aborted_never_happened(opening: Opening) -> None:
    store = opening()
    store.begin().payloads.put(b"key", b"value")
    store.abort()
    store.abort()  # twice does no harm
    assert count(store, "payloads") == 0


def test_what_was_open_at_the_close_never_happened(opening: Opening) -> None:
    opening().begin().payloads.put(b"key", b"value")
    assert count(opening(), "payloads") == 0


def test_the_files_belong_to_their_owner_alone(opening: Opening, tmp_path: Path) -> None:
    opening()
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "store" / "data.mdb").stat().st_mode) == 0o600


def test_a_transaction_sees_its_own_writes_in_every_table(opening: Opening) -> None:
    tables = opening().begin()
    for name in TABLES:
        table = getattr(tables, name)
        assert table.put(b"key", b"value")
        assert table.get(b"key") == b"value"
        cursor = table.cursor()
        assert cursor.first()
        assert (cursor.key(), cursor.value()) == (b"key", b"value")
        assert table.delete(b"key")
        assert table.get(b"key") is None


def test_a_full_map_is_aborted_grown_and_filled_again(opening: Opening) -> None:
    store = opening(map_bytes=SMALL)
    with pytest.raises(MapFull):
        fill(store, 1_000)
    store.abort()
    before = count(store, "payloads")
    while True:
        try:
            fill(store, 1_000)
            break
        except MapFull:
            store.abort()
            store.grow()
    assert (before, count(store, "payloads")) == (0, 1_000)


def test_a_map_that_is_full_at_the_commit_can_be_aborted_too(opening: Opening) -> None:
    """Commits write pages of their own: fill the map row by row, so that some commit is the one to find it full."""
    store = opening(map_bytes=SMALL)
    committed = 0
    while True:
        try:
            fill(store, 1, start=committed)
        except MapFull:
            store.abort()
            break
        committed += 1
    assert count(store, "payloads") == committed
    store.grow()
    fill(store, 1, start=committed)
    assert count(store, "payloads") == committed + 1


def test_a_store_that_was_closed_full_takes_more_when_it_is_opened_again(opening: Opening) -> None:
    """Or a supervisor could not start on it: its first transaction has to write."""
    store = opening(map_bytes=SMALL)
    committed = 0
    with pytest.raises(MapFull):
        while True:
            fill(store, 1, start=committed)
            committed += 1
    store.abort()
    store = opening(map_bytes=SMALL)
    fill(store, committed // 2, start=committed)
    assert count(store, "payloads") == committed + committed // 2


def test_an_engine_goes_on_when_the_map_is_full(opening: Opening) -> None:
    """As the supervisor does it: abort, grow, load memory anew, and the same inputs again."""
    store = opening(map_bytes=SMALL)
    engine = Engine(SETTINGS)
    engine.start(store.begin(), [], Moment(0, 0, 0.0))
    store.commit()
    grown = 0
    for no in range(1, 60):
        said = ClientSays(b"r", 1, no, no, AddJobs("q", [NewJob("work", bytes(5_000))] * 3))
        tables = store.begin()
        while True:
            try:
                engine.begin(tables, Moment(no, no, 0.0))
                engine.handle(said)
                engine.finish()
                store.commit()
                break
            except MapFull:
                store.abort()
                store.grow()
                grown += 1
                tables = store.begin()
                engine.reload(tables)
        engine.committed()
    assert grown > 0
    assert (count(store, "jobs"), count(store, "payloads"), count(store, "waiting")) == (177, 177, 177)
    assert engine.memory.queues["q"].counts[0] == 177


def test_the_size_is_what_was_used(opening: Opening) -> None:
    store = opening()
    before = store.size()
    fill(store, 1_000)
    assert before < 1 << 20
    assert 1_000_000 < store.size() - before < 3_000_000


def test_what_is_no_store_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "data.mdb").write_bytes(b"this is no store" * 1_000)
    with pytest.raises(StoreError, match=f"the store in {tmp_path}/store cannot be opened"):
        LmdbStore(tmp_path / "store")
