"""Room that is kept, given up in time, and taken again."""

from __future__ import annotations

from pathlib import Path

import pytest

from conveyor_actors.store import reserve
from conveyor_actors.store.reserve import NEEDED_BYTES, Reserve

SIZE = 1_000_000


class Disk:
    """So much is free as it says; the reserve's own file is not counted."""

    def __init__(self) -> None:
        self.free = 10 * NEEDED_BYTES

    def disk_free(self, path: Path) -> int:
        return self.free


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(reserve, "disk_free", disk.disk_free)
    return disk


def test_it_takes_up_room_and_says_what_it_lacks(home: Path, disk: Disk) -> None:
    kept = Reserve(home / "reserve", SIZE)
    assert kept.lacking == SIZE
    kept.restore()
    assert kept.lacking == 0
    assert (home / "reserve").stat().st_blocks * 512 >= SIZE


def test_it_is_given_up_before_the_disk_is_full_and_not_earlier(home: Path, disk: Disk) -> None:
    kept = Reserve(home / "reserve", SIZE)
    kept.restore()
    disk.free = NEEDED_BYTES
    kept.before_writing()
    assert kept.lacking == 0
    disk.free = NEEDED_BYTES - 1
    kept.before_writing()
    assert kept.lacking == SIZE and not (home / "reserve").exists()


def test_it_is_not_taken_again_where_it_would_be_given_up_at_once(home: Path, disk: Disk) -> None:
    kept = Reserve(home / "reserve", SIZE)
    disk.free = SIZE + 2 * NEEDED_BYTES - 1
    kept.restore()
    assert kept.lacking == SIZE
    disk.free += 1
    kept.restore()
    kept.before_writing()
    assert kept.lacking == 0


def test_the_next_owner_finds_it_or_makes_it_anew(home: Path, disk: Disk) -> None:
    Reserve(home / "reserve", SIZE).restore()
    assert Reserve(home / "reserve", SIZE).lacking == 0
    assert Reserve(home / "reserve", 2 * SIZE).lacking == 2 * SIZE
    assert not (home / "reserve").exists()


def test_none_is_kept_where_none_is_wanted(home: Path, disk: Disk) -> None:
    kept = Reserve(home / "reserve", 0)
    kept.restore()
    assert kept.lacking == 0 and not (home / "reserve").exists()


def test_a_disk_that_refuses_leaves_nothing_behind(home: Path, disk: Disk) -> None:
    kept = Reserve(home / "reserve", 1 << 60)
    disk.free = 1 << 62
    kept.restore()
    assert kept.lacking == 1 << 60 and not (home / "reserve").exists()
