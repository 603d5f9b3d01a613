"""The journal: which records count, whatever is left of the file."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from conveyor_actors.store.journal import BLOCK, BYTES, Journal


@pytest.fixture(params=["direct", "through the page cache", "lazy"])
def journal(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    if request.param == "through the page cache":
        refuse_direct_writes(monkeypatch)
    opened = Journal(tmp_path / "journal", lazy=request.param == "lazy")
    yield opened
    opened.close()


def refuse_direct_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a filesystem does that has none."""
    open_file = os.open

    def refusing(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return open_file(path, flags, mode)

    monkeypatch.setattr(os, "open", refusing)


def opened_flags(path: Path) -> list[int]:
    """The flags of all descriptors of this process that are open on the file."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if entry.readlink() == path:
                found.append(int(Path(f"/proc/self/fdinfo/{entry.name}").read_text().split("flags:")[1].split()[0], 8))
    return found


def found(path: Path, transaction: int) -> list[bytes]:
    """What the next owner of the file gets."""
    journal = Journal(path / "journal")
    try:
        return list(journal.read(transaction))
    finally:
        journal.close()


def spoil(path: Path, offset: int, data: bytes) -> None:
    with (path / "journal").open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_new_journal_has_nothing_and_its_full_size(journal: Journal, tmp_path: Path) -> None:
    assert list(journal.read(0)) == []
    status = (tmp_path / "journal").stat()
    assert status.st_size == BYTES
    assert status.st_blocks * 512 >= BYTES, "the room must be there before a disk is full"
    assert stat.S_IMODE(status.st_mode) == 0o600


def test_records_come_back_in_order(journal: Journal, tmp_path: Path) -> None:
    bodies = [b"one", b"", b"three" * 5_000, b"four"]
    journal.restart(7)
    assert all(journal.append(body) for body in bodies)
    assert found(tmp_path, 7) == bodies


def test_after_reading_it_goes_on_behind_what_was_read(journal: Journal, tmp_path: Path) -> None:
    journal.restart(7)
    journal.append(b"one")
    again = Journal(tmp_path / "journal")
    list(again.read(7))
    again.append(b"two")
    again.close()
    assert found(tmp_path, 7) == [b"one", b"two"]


@pytest.mark.parametrize("transaction", [0, 6, 8])
def test_records_count_only_on_top_of_their_transaction(journal: Journal, tmp_path: Path, transaction: int) -> None:
    journal.restart(7)
    journal.append(b"one")
    assert found(tmp_path, transaction) == []


def test_a_later_transaction_makes_all_before_it_void(journal: Journal, tmp_path: Path) -> None:
    journal.restart(7)
    for body in (b"one", b"two", b"three"):
        journal.append(body)
    journal.restart(8)
    assert found(tmp_path, 8) == []
    journal.append(b"four")
    assert found(tmp_path, 8) == [b"four"]  # behind it lies "two", which is whole


def test_a_transaction_that_changed_nothing_voids_nothing(journal: Journal, tmp_path: Path) -> None:
    """Or a record written over the first could stand before an old second one, and both would count."""
    journal.restart(7)
    journal.append(b"one")
    journal.restart(7)
    journal.append(b"two")
    assert found(tmp_path, 7) == [b"one", b"two"]


def test_a_record_of_another_past_does_not_follow(journal: Journal, tmp_path: Path) -> None:
    """The same transaction, the same place, but behind another first record."""
    journal.restart(7)
    journal.append(b"one")
    journal.append(b"two")
    other = Journal(tmp_path / "journal")
    other.restart(7)
    other.append(b"eno")
    other.close()
    assert found(tmp_path, 7) == [b"eno"]


def test_every_byte_of_a_record_counts(journal: Journal, tmp_path: Path) -> None:
    journal.restart(7)
    journal.append(b"one")
    journal.append(b"two")
    size = 16 + len(b"two")
    whole = (tmp_path / "journal").read_bytes()[BLOCK : BLOCK + size]
    for offset in range(size):
        spoil(tmp_path, BLOCK + offset, bytes([whole[offset] ^ 0x10]))
        assert found(tmp_path, 7) == [b"one"]
        spoil(tmp_path, BLOCK, whole)
    assert found(tmp_path, 7) == [b"one", b"two"]


@pytest.mark.parametrize("size", [0, 1, 16, 17, BLOCK, BLOCK + 5, BYTES - 1])
def test_a_file_that_was_cut_gives_what_is_whole_and_has_its_size_again(
    journal: Journal, tmp_path: Path, size: int
) -> None:
    journal.restart(7)
    journal.append(b"one")
    os.truncate(tmp_path / "journal", size)
    assert found(tmp_path, 7) == ([b"one"] if size > 16 + len(b"one") else [])
    assert (tmp_path / "journal").stat().st_size == BYTES


def test_what_does_not_fit_is_not_written(journal: Journal, tmp_path: Path) -> None:
    journal.restart(7)
    assert not journal.append(bytes(BYTES))
    assert journal.append(bytes(BYTES - BLOCK - 16))
    assert journal.append(bytes(BLOCK - 16))
    assert not journal.append(b"")
    assert [len(body) for body in found(tmp_path, 7)] == [BYTES - BLOCK - 16, BLOCK - 16]


def test_records_do_not_share_a_block(journal: Journal, tmp_path: Path) -> None:
    """A power cut may spoil the block that is being written; what was promised before must not be in it."""
    journal.restart(7)
    journal.append(b"one")
    journal.append(b"two")
    spoil(tmp_path, BLOCK, b"\xff" * BLOCK)
    assert found(tmp_path, 7) == [b"one"]


def test_the_page_cache_is_in_the_way_only_where_it_must_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flags(*, lazy: bool) -> list[int]:
        journal = Journal(tmp_path / "journal", lazy=lazy)
        try:
            return [found & os.O_DIRECT for found in opened_flags(tmp_path / "journal")]
        finally:
            journal.close()

    assert flags(lazy=True) == [0]
    if flags(lazy=False) != [os.O_DIRECT]:
        pytest.skip("this filesystem has no direct writes")
    refuse_direct_writes(monkeypatch)
    assert flags(lazy=False) == [0]


def test_what_one_way_has_written_the_other_reads(tmp_path: Path) -> None:
    bodies = [b"one", b"two" * 5_000, b"three"]
    for transaction, body in enumerate(bodies):
        journal = Journal(tmp_path / "journal", lazy=transaction % 2 == 1)
        assert list(journal.read(7)) == bodies[:transaction]
        journal.append(body)
        journal.close()
    assert found(tmp_path, 7) == bodies


def test_a_file_that_is_cut_while_it_is_open_is_an_error_and_not_an_end(journal: Journal, tmp_path: Path) -> None:
    journal.restart(7)
    journal.append(b"one")
    os.truncate(tmp_path / "journal", 0)
    with pytest.raises(OSError, match="the journal ends before its"):
        list(journal.read(7))


def test_a_record_is_on_the_disk_when_it_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    synced: list[int] = []
    write, sync = os.pwritev, os.fdatasync

    def writing(fd: int, parts: list[memoryview], offset: int, flags: int = 0) -> int:
        written.append(flags)
        return write(fd, parts, offset, flags)

    def syncing(fd: int) -> None:
        synced.append(fd)
        sync(fd)

    monkeypatch.setattr(os, "pwritev", writing)
    monkeypatch.setattr(os, "fdatasync", syncing)
    for lazy in (False, True):
        opened = Journal(tmp_path / "journal", lazy=lazy)
        opened.append(b"a record")
        assert bool(written[-1] & os.RWF_DSYNC) is not lazy
        opened.sync()
        assert synced
        opened.close()
        synced.clear()


def test_damage_in_the_middle_is_told_and_not_taken_for_the_end(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for lazy in (False, True):
        opened = Journal(path, lazy=lazy)
        opened.live(b"life", synced=not lazy)
        opened.restart(1)
        for number in range(3):
            opened.append(b"record %d" % number)
        opened.close()
        content = bytearray(path.read_bytes())
        content[BLOCK + 20] ^= 1
        path.write_bytes(content)
        opened = Journal(path)  # how it was written counts, not how it will be
        opened.live(b"life", synced=not lazy)
        if lazy:  # blocks may reach the disk in any order then
            assert list(opened.read(1)) == [b"record 0"]
        else:
            with pytest.raises(OSError, match="the journal is damaged 4096 bytes from its beginning"):
                list(opened.read(1))
        opened.close()
        path.unlink()


def test_a_last_record_that_is_not_whole_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    opened = Journal(path)
    opened.live(b"life", synced=True)
    opened.restart(1)
    for number in range(3):
        opened.append(b"record %d" % number)
    opened.close()
    content = bytearray(path.read_bytes())
    content[2 * BLOCK + 20] ^= 1
    path.write_bytes(content)
    opened = Journal(path)
    opened.live(b"life", synced=True)
    assert list(opened.read(1)) == [b"record 0", b"record 1"]
    opened.close()
