"""LMDB below the tables: opening, transactions, growing. The only importer of lmdb.

Knows nothing of jobs. Invariant: a transaction is begun, filled and committed by one thread, the one that opened
the store; what is committed with durability `fsync` survives a power cut.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final

import lmdb

from conveyor_actors.errors import StoreError
from conveyor_actors.store.tables import TABLES

MAP_BYTES_FIRST: Final = 1 << 30
MapFull = lmdb.MapFullError


class LmdbTable:
    """One table inside a transaction: its operations are those of the transaction, bound when they are first used."""

    __slots__ = ("_database", "_txn", "cursor", "delete", "get", "put")

    def __init__(self, txn: Any, database: Any) -> None:
        self._txn = txn
        self._database = database

    def __getattr__(self, operation: str) -> Any:
        bound = functools.partial(getattr(self._txn, operation), db=self._database)
        setattr(self, operation, bound)
        return bound


class LmdbTables:
    """All tables inside one transaction; each is bound when it is first used."""

    def __init__(self, txn: Any, databases: dict[str, Any]) -> None:
        self._txn = txn
        self._databases = databases

    def __getattr__(self, name: str) -> LmdbTable:
        table = LmdbTable(self._txn, self._databases[name])
        self.__dict__[name] = table
        return table


class LmdbStore:
    """The environment. `durability="relaxed"` leaves the syncing to `sync()`."""

    def __init__(self, path: Path, *, durability: str = "fsync", map_bytes: int = MAP_BYTES_FIRST) -> None:
        self.path = path
        self.relaxed = durability == "relaxed"
        path.mkdir(mode=0o700, exist_ok=True)
        # Twice the file: a store that was left full must have room for the first transaction of its next owner.
        map_bytes = max(map_bytes, 2 * _size_of(path))
        try:
            self._environment = lmdb.open(
                str(path),
                map_size=map_bytes,
                max_dbs=len(TABLES),
                mode=0o600,
                sync=not self.relaxed,
                lib_version=0,
            )
        except lmdb.Error as error:
            raise StoreError(f"the store in {path} cannot be opened: {error}") from error
        self._databases = {name: self._environment.open_db(name.encode()) for name in TABLES}
        self._txn: Any = None

    def begin(self) -> Any:
        """Starts the one write transaction there is and gives its tables."""
        self._txn = self._environment.begin(write=True)
        return LmdbTables(self._txn, self._databases)

    def commit(self) -> None:
        self._txn.commit()
        self._txn = None

    def abort(self) -> None:
        if self._txn is not None:
            self._txn.abort()
            self._txn = None

    def grow(self) -> int:
        """Doubles the map. No transaction may be open."""
        size: int = self._environment.info()["map_size"] * 2
        self._environment.set_mapsize(size)
        return size

    def sync(self) -> None:
        self._environment.sync(True)

    def size(self) -> int:
        """Bytes of the file that have been used."""
        info = self._environment.info()
        page: int = self._environment.stat()["psize"]
        used: int = (info["last_pgno"] + 1) * page
        return used

    def close(self) -> None:
        self.abort()
        self._environment.close()


def _size_of(path: Path) -> int:
    try:
        return (path / "data.mdb").stat().st_size
    except FileNotFoundError:
        return 0
