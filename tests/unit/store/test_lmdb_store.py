"""The store below the tables: transactions, growing, opening."""

from __future__ import annotations

import random
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from conveyor_actors.engine.engine import Engine
from conveyor_actors.engine.inputs import ClientSays, Moment
from conveyor_actors.engine.memory import PoolSettings, Settings
from conveyor_actors.errors import StoreError
from conveyor_actors.store import journal
from conveyor_actors.store.lmdb_store import LmdbStore, MapFull
from conveyor_actors.store.tables import TABLES, number_key
from conveyor_actors.wire import AddJobs, NewJob

Opening = Callable[..., LmdbStore]
SMALL = 1 << 17
TABLES_TRIED = ("jobs", "waiting", "events")
TABLE = st.sampled_from(TABLES_TRIED)
KEY = st.integers(0, 5).map(number_key)
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
    for name in ("data.mdb", "journal"):
        assert stat.S_IMODE((tmp_path / "store" / name).stat().st_mode) == 0o600


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


def test_what_is_in_the_journal_and_what_is_in_lmdb_make_one_store(opening: Opening) -> None:
    store = opening()
    fill(store, 5)
    store.checkpoint()
    fill(store, 5, start=5)
    store.begin().payloads.delete(number_key(0))
    store.commit()
    assert count(store, "payloads") == 9
    assert count(opening(), "payloads") == 9
    assert count(opening(), "payloads") == 9  # found in the journal once, in LMDB from then on


def test_an_abort_takes_back_nothing_that_was_committed(opening: Opening) -> None:
    store = opening()
    fill(store, 3)
    tables = store.begin()
    tables.payloads.put(b"key", b"value")
    tables.payloads.delete(number_key(0))
    cursor = tables.payloads.cursor()
    cursor.first()
    tables.payloads.delete_at(cursor)
    store.abort()
    assert count(store, "payloads") == 3
    fill(store, 1, start=3)
    assert count(opening(), "payloads") == 4


def test_deleting_at_a_cursor_goes_on_to_the_next_row_and_is_kept(opening: Opening) -> None:
    store = opening()
    fill(store, 3)
    table = store.begin().payloads
    cursor = table.cursor()
    cursor.set_range(number_key(1))
    assert table.delete_at(cursor)
    assert cursor.key() == number_key(2)
    assert not table.delete_at(cursor)
    store.commit()
    assert count(opening(), "payloads") == 1


def test_what_is_too_much_for_the_journal_is_committed_all_the_same(opening: Opening) -> None:
    store = opening()
    fill(store, 10)
    fill(store, journal.BYTES // 1_000, start=10)
    assert not store.behind
    fill(store, 10, start=journal.BYTES)
    assert count(opening(), "payloads") == journal.BYTES // 1_000 + 20


def test_a_journal_that_fills_up_starts_again(opening: Opening) -> None:
    store = opening()
    commits = 2 * journal.BYTES // journal.BLOCK + 5
    for number in range(commits):
        fill(store, 1, start=number)
    assert count(opening(), "payloads") == commits


def test_a_map_that_is_too_small_for_a_checkpoint_grows(opening: Opening) -> None:
    store = opening(map_bytes=SMALL)
    committed = 0
    while committed < 1_000:
        try:
            fill(store, 1, start=committed)
            committed += 1
        except MapFull:
            store.abort()
            store.grow()
        if committed % 7 == 0:
            store.checkpoint()
    assert count(opening(map_bytes=SMALL), "payloads") == committed


def test_a_commit_that_changed_nothing_writes_nothing(opening: Opening, tmp_path: Path) -> None:
    store = opening()
    store.begin().payloads.get(b"key")
    before = (tmp_path / "store" / "journal").read_bytes()
    store.commit()
    assert not store.behind
    assert (tmp_path / "store" / "journal").read_bytes() == before


class Dictionaries(RuleBasedStateMachine):
    """Whatever is put, deleted, committed, aborted and lost, the store has what was committed, as a dict would."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.store = self.open(self.path)
        self.committed: dict[tuple[str, bytes], bytes] = {}
        self.now: dict[tuple[str, bytes], bytes] = {}

    def open(self, path: Path) -> LmdbStore:
        return LmdbStore(path / "store", durability="relaxed", map_bytes=SMALL)

    def do(self, change: Callable[[Any], object]) -> None:
        """A full map is grown, and what was done since the last commit is done again."""
        while True:
            try:
                change(self.store.begin())
                return
            except MapFull:
                self.store.abort()
                self.store.grow()
                for table, key in self.committed.keys() - self.now.keys():
                    getattr(self.store.begin(), table).delete(key)
                for (table, key), value in self.now.items() - self.committed.items():
                    getattr(self.store.begin(), table).put(key, value)

    @rule(table=TABLE, key=KEY, value=st.binary(max_size=2_000))
    def put(self, table: str, key: bytes, value: bytes) -> None:
        self.do(lambda tables: getattr(tables, table).put(key, value))
        self.now[table, key] = value

    @rule(table=TABLE, key=KEY)
    def delete(self, table: str, key: bytes) -> None:
        self.do(lambda tables: getattr(tables, table).delete(key))
        self.now.pop((table, key), None)

    @rule(table=TABLE)
    def delete_first(self, table: str) -> None:
        keys = sorted(key for name, key in self.now if name == table)
        if keys:

            def change(tables: Any) -> None:
                cursor = getattr(tables, table).cursor()
                assert cursor.first()
                assert getattr(tables, table).delete_at(cursor) == (len(keys) > 1)

            self.do(change)
            del self.now[table, keys[0]]

    @rule()
    def commit(self) -> None:
        self.store.commit()
        self.committed = dict(self.now)

    @rule()
    def checkpoint(self) -> None:
        self.commit()
        self.store.checkpoint()

    @rule()
    def abort(self) -> None:
        self.store.abort()
        self.now = dict(self.committed)

    @rule()
    def crash(self) -> None:
        self.store.close()
        self.store = self.open(self.path)
        self.now = dict(self.committed)

    @rule()
    def copy_while_open(self) -> None:
        """What a power cut would leave on the disk is a store with what was committed."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(self.path / "store", Path(folder) / "store")
            copy = self.open(Path(folder))
            assert rows(copy) == self.committed
            copy.close()

    @invariant()
    def has_what_it_should(self) -> None:
        assert rows(self.store) == self.now

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


def rows(store: LmdbStore) -> dict[tuple[str, bytes], bytes]:
    tables = store.begin()
    return {(name, key): value for name in TABLES_TRIED for key, value in getattr(tables, name).cursor()}


TestDictionaries = Dictionaries.TestCase
TestDictionaries.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


KILLED_WHILE_COMMITTING = """
import sys
from pathlib import Path
from conveyor_actors.store.lmdb_store import LmdbStore
from conveyor_actors.store.tables import number_key

store = LmdbStore(Path(sys.argv[1]), durability=sys.argv[2])
number = sum(1 for _ in store.begin().payloads.cursor())
while True:
    store.begin().payloads.put(number_key(number), bytes(100))
    store.commit()
    print(number, flush=True)
    number += 1
    if number % 50 == 0:
        store.checkpoint()
"""


@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path, durability: str) -> None:
    acknowledged = -1
    draw = random.Random(4)
    for _ in range(8):
        command = [sys.executable, "-c", KILLED_WHILE_COMMITTING, str(tmp_path / "store"), durability]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(draw.randint(1, 200)):
                acknowledged = int(process.stdout.readline())
            process.kill()
            for line in process.stdout.read().split("\n")[:-1]:
                acknowledged = int(line)
        store = LmdbStore(tmp_path / "store")
        keys = [int.from_bytes(key, "big") for key, _ in store.begin().payloads.cursor()]
        store.close()
        assert keys == list(range(len(keys)))
        assert acknowledged + 1 <= len(keys) <= acknowledged + 2


def test_the_size_is_what_was_used(opening: Opening) -> None:
    store = opening()
    before = store.size()
    fill(store, 1_000)
    store.checkpoint()
    assert before < 1 << 20
    assert 1_000_000 < store.size() - before < 3_000_000


def test_what_is_no_store_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "data.mdb").write_bytes(b"this is no store" * 1_000)
    with pytest.raises(StoreError, match=f"the store in {tmp_path}/store cannot be opened"):
        LmdbStore(tmp_path / "store")


def leave_a_journal(path: Path) -> None:
    """A store with rows that are in its journal alone; `copy.mdb` is LMDB's file from before them."""
    store = LmdbStore(path / "store")
    fill(store, 3)
    store.checkpoint()
    shutil.copy(path / "store" / "data.mdb", path / "copy.mdb")
    fill(store, 5, start=3)
    store.close()


def assert_no_record_of_the_journal_ever_counts(path: Path, rows: int) -> None:
    store = LmdbStore(path / "store")
    for _ in range(40):  # whatever transaction the records were on top of, its number comes by
        assert count(store, "payloads") == rows
        store.begin().meta.put(b"key", b"value")
        store.checkpoint()
    store.close()


def test_a_journal_does_not_count_on_top_of_a_file_that_was_put_back(tmp_path: Path) -> None:
    leave_a_journal(tmp_path)
    store = LmdbStore(tmp_path / "store")
    for _ in range(3):
        store.begin().meta.put(b"key", b"value")
        store.checkpoint()
    fill(store, 2, start=8)
    store.close()
    shutil.copy(tmp_path / "copy.mdb", tmp_path / "store" / "data.mdb")
    assert_no_record_of_the_journal_ever_counts(tmp_path, 3)


def test_a_journal_does_not_count_in_a_new_store(tmp_path: Path) -> None:
    leave_a_journal(tmp_path)
    (tmp_path / "store" / "data.mdb").unlink()
    assert_no_record_of_the_journal_ever_counts(tmp_path, 0)


def test_a_table_that_is_new_costs_nothing_of_what_is_in_the_journal(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("conveyor_actors.store.lmdb_store.TABLES", TABLES[:-2])
        fill(opening(), 5)
    store = opening()
    assert count(store, "payloads") == 5
    store.begin().requests.put(b"key", b"value")
    store.commit()
    assert count(opening(), "requests") == 1


WRITES_BEYOND_ITS_LIMIT = """
import resource, sys
from pathlib import Path
from conveyor_actors.errors import StoreError
from conveyor_actors.store.lmdb_store import LmdbStore

store = LmdbStore(Path(sys.argv[1]))
store.begin().payloads.put(b"acknowledged", b"")
store.commit()
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
store.begin().payloads.put(b"refused", b"")
try:
    getattr(store, sys.argv[2])()
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("step", ["commit", "checkpoint"])
def test_a_disk_that_takes_nothing_is_told_and_costs_nothing_acknowledged(tmp_path: Path, step: str) -> None:
    command = [sys.executable, "-c", WRITES_BEYOND_ITS_LIMIT, str(tmp_path / "store"), step]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.startswith(f"the store in {tmp_path}/store cannot be written: "), told
    store = LmdbStore(tmp_path / "store")
    assert [key for key, _ in store.begin().payloads.cursor()] == [b"acknowledged"]
    store.close()


# -- the disk, and the map at the very end ------------------------------------------------------------------------


def test_lmdb_itself_is_always_synced(opening: Opening) -> None:
    for durability in ("fsync", "relaxed"):
        flags = opening(durability=durability)._environment.flags()
        assert flags["sync"] and flags["metasync"] and not flags["writemap"]


def test_a_commit_that_finds_the_map_full_loses_nothing(tmp_path: Path) -> None:
    """LMDB needs pages of its own for a commit: there are transactions whose puts fit, and that do not."""
    value, map_bytes = bytes(1_000), 6 << 20

    def commit(rows: int) -> tuple[bool, int] | None:
        """Whether the map grew for a commit of so many rows, and how many are there; None if they do not fit."""
        with tempfile.TemporaryDirectory(dir=tmp_path) as path:
            store = LmdbStore(Path(path) / "store", durability="relaxed", map_bytes=map_bytes)
            try:
                tables = store.begin()
                for number in range(rows):
                    tables.payloads.put(number_key(number), value)
                store.commit()
                return store._environment.info()["map_size"] > map_bytes, count(store, "payloads")
            except MapFull:
                return None
            finally:
                store.close()

    fits, does_not = 4_300, 7_000
    while does_not - fits > 1:
        middle = (fits + does_not) // 2
        fits, does_not = (middle, does_not) if commit(middle) is not None else (fits, middle)
    tried = {rows: commit(rows) for rows in range(fits - 10, fits + 1)}
    assert all(found is not None and found[1] == rows for rows, found in tried.items())
    assert any(found is not None and found[0] for found in tried.values()), "no commit has met the end of the map"
