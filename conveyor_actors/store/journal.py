"""The journal: what was written since LMDB's last commit, safe with one flush where a commit takes two.

Knows nothing of tables or LMDB. A record counts only in the life of the store in which it was written, on top of the
transaction it was written after, and behind the records before it; so a commit makes the whole file void without
touching it. Invariant: a block that holds a record which counts is not written again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

BYTES: Final = 4 << 20
#: Records begin at multiples of it: a power cut may spoil a block that is being written, never one written before.
BLOCK: Final = 4096

#: Checksum of the rest and of the record before it, number of bytes in the body, transaction it is on top of.
_header: Final = Struct(">IIQ")
_CHECKSUM_BYTES: Final = 4


class Journal:
    """One file of fixed size, filled with zeros when it is made: writing into it changes no metadata."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._life = 0
        self._transaction = 0
        self._end = 0
        self._checksum = 0
        while (size := os.fstat(self._file).st_size) < BYTES:
            os.pwrite(self._file, bytes(BYTES - size), size)
        os.fsync(self._file)
        _sync_folder(path.parent)

    def live(self, life: bytes) -> None:
        """Only records that were or will be written in this life of the store count from here on."""
        self._life = crc32(life)

    def restart(self, transaction: int) -> None:
        """Every record so far is in LMDB as of this transaction; those to come are on top of it."""
        if transaction != self._transaction:
            self._transaction = transaction
            self._end, self._checksum = 0, self._life

    def read(self, transaction: int) -> Iterator[bytes]:
        """The bodies of the records on top of this transaction, in order; after that `append` goes on behind them."""
        self._transaction = transaction
        self._end, self._checksum = 0, self._life
        while True:
            head = os.pread(self._file, _header.size, self._end)
            if len(head) < _header.size:
                return
            checksum, size, on_top_of = _header.unpack(head)
            if on_top_of != transaction or self._end + _header.size + size > BYTES:
                return
            body = os.pread(self._file, size, self._end + _header.size)
            if checksum != crc32(body, crc32(head[_CHECKSUM_BYTES:], self._checksum)):
                return
            self._advance(checksum, size)
            yield body

    def append(self, body: bytes) -> bool:
        """Writes a record, which is safe after `sync`; False if there is no room for it."""
        size = _header.size + len(body)
        if self._end + size > BYTES:
            return False
        head = _header.pack(0, len(body), self._transaction)[_CHECKSUM_BYTES:]
        checksum = crc32(body, crc32(head, self._checksum))
        record = b"".join((checksum.to_bytes(_CHECKSUM_BYTES, "big"), head, body, bytes(-size % BLOCK)))
        written = os.pwrite(self._file, record, self._end)
        if written != len(record):
            raise OSError(f"the journal took {written} of {len(record)} bytes")
        self._advance(checksum, len(body))
        return True

    def _advance(self, checksum: int, size: int) -> None:
        self._checksum = checksum
        self._end += -(-(_header.size + size) // BLOCK) * BLOCK

    def sync(self) -> None:
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
