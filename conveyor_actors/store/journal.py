"""The journal: what was written since LMDB's last commit, safe with one flush where a commit takes two.

Knows nothing of tables or LMDB. A record counts only in the life of the store in which it was written, on top of the
transaction it was written after, and behind the records before it; so a commit makes the whole file void without
touching it. Invariant: a block that holds a record which counts is not written again.
"""

from __future__ import annotations

import mmap
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
    """One file of fixed size, filled with zeros when it is made: writing into it changes no metadata.

    A record is safe when `append` returns; with `lazy`, after the next `sync`.
    """

    def __init__(self, path: Path, *, lazy: bool = False) -> None:
        self._life = 0
        self._synced = False
        self._transaction = 0
        self._end = 0
        self._checksum = 0
        self._how = 0 if lazy else os.RWF_DSYNC
        # Aligned, as direct writes need it; takes as much memory as was ever used of it.
        self._page = memoryview(mmap.mmap(-1, BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while (size := os.fstat(self._file).st_size) < BYTES:
                os.pwrite(self._file, bytes(BYTES - size), size)
            os.fsync(self._file)
            _sync_folder(path.parent)
            if not lazy:
                self._write_directly(path)
        except BaseException:
            os.close(self._file)
            raise

    def _write_directly(self, path: Path) -> None:
        """Past the page cache, where the filesystem can do that: a synchronous write is faster then."""
        try:
            direct = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT)
        except OSError:
            return
        try:
            os.preadv(direct, [self._page[:BLOCK]], 0)
        except OSError:
            os.close(direct)
            return
        os.close(self._file)
        self._file = direct

    def live(self, life: bytes, *, synced: bool) -> None:
        """Only records that were or will be written in this life of the store count from here on. `synced`: each was
        on the disk before the next was written."""
        self._life = crc32(life)
        self._synced = synced

    def restart(self, transaction: int) -> None:
        """Every record so far is in LMDB as of this transaction; those to come are on top of it."""
        if transaction != self._transaction:
            self._transaction = transaction
            self._end, self._checksum = 0, self._life

    def read(self, transaction: int) -> Iterator[bytes]:
        """The bodies of the records on top of this transaction, in order; after that `append` goes on behind them."""
        self._transaction = transaction
        self._end, self._checksum = 0, self._life
        while self._end < BYTES:
            page = self._read(BLOCK)
            checksum, size, on_top_of = _header.unpack_from(page)
            if on_top_of != transaction or self._end + _header.size + size > BYTES:
                return
            if size > BLOCK - _header.size:
                page = self._read(_in_blocks(_header.size + size))
            body = bytes(page[_header.size : _header.size + size])
            if checksum != _checksum(page, body, self._checksum):
                self._check_tail(checksum, size)
                return
            self._advance(checksum, size)
            yield body

    def _check_tail(self, checksum: int, size: int) -> None:
        """A record that is not whole was being written when the power went; so there is none behind it."""
        before, self._end = self._end, self._end + _in_blocks(_header.size + size)
        try:
            if not self._synced or self._end >= BYTES:
                return
            page = self._read(BLOCK)
            own, own_size, on_top_of = _header.unpack_from(page)
            if on_top_of != self._transaction or self._end + _header.size + own_size > BYTES:
                return
            page = self._read(_in_blocks(_header.size + own_size))
            if own == _checksum(page, bytes(page[_header.size : _header.size + own_size]), checksum):
                raise OSError(f"the journal is damaged {before} bytes from its beginning: restore a backup")
        finally:
            self._end = before

    def _read(self, size: int) -> memoryview:
        page = self._page[:size]
        if os.preadv(self._file, [page], self._end) != size:
            raise OSError(f"the journal ends before its {BYTES} bytes")
        return page

    def append(self, body: bytes) -> bool:
        """Writes a record; False if there is no room for it."""
        size = _header.size + len(body)
        if self._end + size > BYTES:
            return False
        page = self._page[: _in_blocks(size)]
        _header.pack_into(page, 0, 0, len(body), self._transaction)
        page[_header.size : size] = body
        page[size:] = bytes(len(page) - size)
        checksum = _checksum(page, body, self._checksum)
        page[:_CHECKSUM_BYTES] = checksum.to_bytes(_CHECKSUM_BYTES, "big")
        written = os.pwritev(self._file, [page], self._end, self._how)
        if written != len(page):
            raise OSError(f"the journal took {written} of {len(page)} bytes")
        self._advance(checksum, len(body))
        return True

    def _advance(self, checksum: int, size: int) -> None:
        self._checksum = checksum
        self._end += _in_blocks(_header.size + size)

    def sync(self) -> None:
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def _checksum(page: memoryview, body: bytes, before: int) -> int:
    """Of a record, its header and the record before it."""
    return crc32(body, crc32(page[_CHECKSUM_BYTES : _header.size], before))


def _in_blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
