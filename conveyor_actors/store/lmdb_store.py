"""LMDB below the tables: opening, transactions, growing. The only importer of lmdb.

Knows nothing of jobs. A commit goes to the journal, and LMDB's own transaction stays open across many of them until
`checkpoint`. Invariant: what is committed with durability `fsync` survives a power cut; LMDB's transactions are begun,
filled and committed by one thread, the one that opened the store.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final

import lmdb
import msgspec

from conveyor_actors.errors import StoreError
from conveyor_actors.store.journal import Journal
from conveyor_actors.store.tables import TABLES, Cursor

MAP_BYTES_FIRST: Final = 1 << 30
MapFull = lmdb.MapFullError

#: A row that was put, or (without a value) deleted: (number of the table, key, value).
Change = tuple[int, bytes, bytes | None]

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[Change]).decode


class LmdbTable:
    """One table inside LMDB's transaction. What changes it is noted, for the journal."""

    __slots__ = ("_delete", "_note", "_number", "_put", "cursor", "get")

    def __init__(self, txn: Any, database: Any, number: int, changes: list[Change]) -> None:
        self.get = functools.partial(txn.get, db=database)
        self.cursor = functools.partial(txn.cursor, db=database)
        self._put = functools.partial(txn.put, db=database)
        self._delete = functools.partial(txn.delete, db=database)
        self._number = number
        self._note = changes.append

    def put(self, key: bytes, value: bytes, *, append: bool = False) -> bool:
        self._note((self._number, key, value))
        done: bool = self._put(key, value, append=append)
        return done

    def delete(self, key: bytes) -> bool:
        self._note((self._number, key, None))
        done: bool = self._delete(key)
        return done

    def delete_at(self, cursor: Cursor) -> bool:
        """Deletes the row the cursor is at; False if there is no row after it, to which the cursor goes."""
        self._note((self._number, cursor.key(), None))
        cursor.delete()  # type: ignore[attr-defined]  # kept out of the protocol: here it is noted
        return bool(cursor.key())


class LmdbTables:
    """All tables inside one transaction."""

    def __init__(self, txn: Any, databases: dict[str, Any], changes: list[Change]) -> None:
        for number, (name, database) in enumerate(databases.items()):
            setattr(self, name, LmdbTable(txn, database, number, changes))


class LmdbStore:
    """The environment and its journal. `durability="relaxed"` leaves the syncing to `sync()`."""

    def __init__(self, path: Path, *, durability: str = "fsync", map_bytes: int = MAP_BYTES_FIRST) -> None:
        self.path = path
        self.relaxed = durability == "relaxed"
        path.mkdir(mode=0o700, exist_ok=True)
        # Twice the file: a store that was left full must have room for the first transaction of its next owner.
        map_bytes = max(map_bytes, 2 * _size_of(path))
        try:
            self._environment = lmdb.open(str(path), map_size=map_bytes, max_dbs=len(TABLES), mode=0o600, lib_version=0)
        except lmdb.Error as error:
            raise StoreError(f"the store in {path} cannot be opened: {error}") from error
        self._databases = {name: self._environment.open_db(name.encode()) for name in TABLES}
        self._journal = Journal(path / "journal")
        self._txn: Any = None
        self._tables: LmdbTables
        self._changes: list[Change] = []
        #: Whether the journal has what LMDB has not, and whether it has what the disk has not.
        self.behind = True
        self.unsynced = False
        self.checkpoint()

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
        if not self._journal.append(_encode(self._changes)):
            self.checkpoint()
            return
        self._changes.clear()
        self.behind = self.unsynced = True
        if not self.relaxed:
            self.sync()

    def abort(self) -> None:
        """What was changed since the last commit never happened."""
        if self._changes:
            self._drop()

    def checkpoint(self) -> None:
        """Brings LMDB up to the journal, which is void then. Safe as such, whatever the durability."""
        changes = list(self._changes)
        while True:
            try:
                if self._txn is None:
                    self._open()
                    self._apply(changes)
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
        self._journal.sync()
        self.unsynced = False

    def _open(self) -> None:
        """Begins LMDB's transaction, and does in it again what the journal tells."""
        last = self._last_transaction()
        self._txn = self._environment.begin(write=True)
        self._changes.clear()
        self._tables = LmdbTables(self._txn, self._databases, self._changes)
        for record in self._journal.read(last):
            self._apply(_decode(record))

    def _apply(self, changes: list[Change]) -> None:
        databases = list(self._databases.values())
        for table, key, value in changes:
            if value is None:
                self._txn.delete(key, db=databases[table])
            else:
                self._txn.put(key, value, db=databases[table])

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
