"""LMDB below the tables: opening, transactions, growing. The only importer of lmdb.

Knows nothing of jobs. A commit goes to the journal, and LMDB's own transaction stays open across many of them until
`checkpoint`. Invariant: what is committed with durability `fsync` survives a power cut; LMDB's transactions are begun,
filled and committed by one thread, the one that opened the store.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import lmdb
import msgspec

from conveyor_actors.errors import CorruptRecord, StoreError
from conveyor_actors.store.journal import Journal
from conveyor_actors.store.reserve import Reserve, disk_free
from conveyor_actors.store.tables import LIFE_KEY, TABLES, Cursor

MAP_BYTES_FIRST: Final = 1 << 30
MapFull = lmdb.MapFullError
#: What says that the store itself is at its end, and not only the one who used it.
Faults: Final = (
    lmdb.MapFullError,
    lmdb.TxnFullError,
    lmdb.BadTxnError,
    lmdb.DiskError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
)
_NUMBERS: Final = {name: number for number, name in enumerate(TABLES)}
_LIFE_BYTES: Final = 16
#: How the journal of a life is written stands at the end of its name.
_SYNCED: Final = b"\1"
_NOT_SYNCED: Final = b"\0"

#: A row that was put, or (without a value) deleted: (number of the table, key, value).
Change = tuple[int, bytes, bytes | None]

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[Change]).decode


class LmdbTable:
    """One table inside LMDB's transaction. What changes it is noted, for the journal."""

    __slots__ = ("_database", "_delete", "_note", "_number", "_put", "cursor", "get")

    def __init__(self, txn: Any, database: Any, number: int, changes: list[Change]) -> None:
        self.get = functools.partial(txn.get, db=database)
        self.cursor = functools.partial(txn.cursor, db=database)
        self._put, self._delete = txn.put, txn.delete
        self._database = database
        self._number = number
        self._note = changes.append

    def put(self, key: bytes, value: bytes, *, append: bool = False) -> bool:
        self._note((self._number, key, value))
        # dupdata and overwrite by place: read by name, the arguments cost as much as the rest.
        done: bool = self._put(key, value, True, True, append, self._database)
        if not done:  # to be the last row, it has to be behind all others
            raise CorruptRecord("a new row is not behind all others: the store is damaged, restore a backup")
        return done

    def delete(self, key: bytes) -> bool:
        self._note((self._number, key, None))
        done: bool = self._delete(key, b"", self._database)
        return done

    def delete_at(self, cursor: Cursor) -> bool:
        """Deletes the row the cursor is at; False if there is no row after it, to which the cursor goes."""
        self._note((self._number, cursor.key(), None))
        cursor.delete()  # type: ignore[attr-defined]  # kept out of the protocol: here it is noted
        return bool(cursor.key())


class LmdbTables:
    """All tables inside one transaction."""

    def __init__(self, txn: Any, databases: dict[str, Any], changes: list[Change]) -> None:
        for name, database in databases.items():
            setattr(self, name, LmdbTable(txn, database, _NUMBERS[name], changes))


class LmdbStore:
    """The environment and its journal. `durability="relaxed"` leaves the syncing to `sync()`."""

    def __init__(
        self, path: Path, *, durability: str = "fsync", map_bytes: int = MAP_BYTES_FIRST, reserve_bytes: int = 0
    ) -> None:
        self.path = path
        self.relaxed = durability == "relaxed"
        path.mkdir(mode=0o700, exist_ok=True)
        self.reserve = Reserve(path / "reserve", reserve_bytes)
        # Twice the file: a store that was left full must have room for the first transaction of its next owner.
        map_bytes = max(map_bytes, 2 * _size_of(path))
        self._txn: Any = None
        self._tables: LmdbTables
        self._changes: list[Change] = []
        #: Whether the journal has what LMDB has not, and whether it has what the disk has not.
        self.behind = True
        self.unsynced = False
        with self._telling("cannot be opened"):
            self._environment = lmdb.open(str(path), map_size=map_bytes, max_dbs=len(TABLES), mode=0o600, lib_version=0)
            self._databases = self._open_tables(create=False)
            self._journal = Journal(path / "journal", lazy=self.relaxed)
        self._recover()

    def _open_tables(self, *, create: bool) -> dict[str, Any]:
        found = {}
        for name in TABLES:
            with contextlib.suppress(lmdb.NotFoundError):
                found[name] = self._environment.open_db(name.encode(), create=create)
        return found

    def _recover(self) -> None:
        """What the journal has comes into LMDB before anything else does, and a new life begins."""
        if "meta" in self._databases:
            with self._environment.begin(db=self._databases["meta"]) as txn:
                life = txn.get(LIFE_KEY, b"")
                self._journal.live(life, synced=life.endswith(_SYNCED))
        self.checkpoint()
        with self._telling("cannot be opened"):
            self._databases = self._open_tables(create=True)
            life = os.urandom(_LIFE_BYTES) + (_NOT_SYNCED if self.relaxed else _SYNCED)
            with self._environment.begin(write=True, db=self._databases["meta"]) as txn:
                txn.put(LIFE_KEY, life)
            self._journal.live(life, synced=not self.relaxed)
            self._journal.restart(self._last_transaction())

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """A failing disk is told as what it is. Nothing is tried again after it: what was synced is unknown then."""
        try:
            yield
        except MapFull:
            raise
        except (lmdb.Error, OSError) as error:
            raise self._fault(what, error) from error

    def _fault(self, what: str, error: Exception) -> StoreError:
        return StoreError(f"the store in {self.path} {what}: {error}")

    # -- transactions -------------------------------------------------------------------------------------

    def begin(self) -> Any:
        """The tables, as the last commit left them."""
        if self._txn is None:
            self._open()
        return self._tables

    def commit(self) -> None:
        """Makes safe what was changed since: in the journal, or in LMDB if it is too much for that."""
        if not self._changes:
            return
        try:
            fits = self._journal.append(_encode(self._changes))
        except OSError as error:
            raise self._fault("cannot be written", error) from error
        if not fits:
            self.checkpoint()
            return
        self._changes.clear()
        self.behind = True
        self.unsynced = self.relaxed

    def abort(self) -> None:
        """What was changed since the last commit never happened."""
        if self._changes:
            self._drop()

    def checkpoint(self) -> None:
        """Brings LMDB up to the journal, which is void then. Safe as such, whatever the durability."""
        changes = list(self._changes)
        self.reserve.before_writing()
        while True:
            try:
                if self._txn is None:
                    self._open()
                    self._apply(changes)
                with self._telling("cannot be written"):
                    self._txn.commit()
                break
            except MapFull:
                self._drop()
                self.grow()
        self._txn = None
        self._changes.clear()
        self._journal.restart(self._last_transaction())
        self.behind = self.unsynced = False

    def sync(self) -> None:
        """What was committed survives a power cut from here on."""
        with self._telling("cannot be written"):
            self._journal.sync()
        self.unsynced = False

    def _open(self) -> None:
        """Begins LMDB's transaction, and does in it again what the journal tells."""
        with self._telling("cannot be read"):
            last = self._last_transaction()
            self._txn = self._environment.begin(write=True)
            self._changes.clear()
            self._tables = LmdbTables(self._txn, self._databases, self._changes)
            try:
                for record in self._journal.read(last):
                    self._apply(_decode(record))
            except BaseException:
                self._drop()  # half of it is nothing
                raise

    def _apply(self, changes: list[Change]) -> None:
        for number, key, value in changes:
            database = self._databases[TABLES[number]]
            if value is None:
                self._txn.delete(key, db=database)
            else:
                self._txn.put(key, value, db=database)

    def _drop(self) -> None:
        """The next `begin` starts from what LMDB and the journal have."""
        self._changes.clear()
        if self._txn is not None:
            self._txn.abort()
            self._txn = None

    def _last_transaction(self) -> int:
        number: int = self._environment.info()["last_txnid"]
        return number

    # -- the map ------------------------------------------------------------------------------------------

    def grow(self) -> int:
        """Doubles the map. Not inside a transaction."""
        self._drop()
        size: int = self._environment.info()["map_size"] * 2
        self._environment.set_mapsize(size)
        return size

    def size(self) -> int:
        """Bytes of LMDB's file that were in use at the last checkpoint."""
        info = self._environment.info()
        page: int = self._environment.stat()["psize"]
        used: int = (info["last_pgno"] + 1) * page
        return used

    def disk_free(self) -> int:
        """Bytes that are free on the disk it is on."""
        return disk_free(self.path)

    def close(self) -> None:
        """As a crash would: what is in the journal alone is found there by the next owner."""
        self._drop()
        self._environment.close()
        self._journal.close()


def _size_of(path: Path) -> int:
    try:
        return (path / "data.mdb").stat().st_size
    except FileNotFoundError:
        return 0
