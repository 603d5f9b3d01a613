"""The journal: which records count, whatever is left of the file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from conveyor_actors.store.journal import BLOCK, BYTES, Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal")
    yield opened
    opened.close()


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
