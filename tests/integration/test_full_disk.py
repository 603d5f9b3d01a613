"""A disk that fills up: adds are refused, what runs is recorded, and all goes on by itself when there is room again."""

import os
import subprocess

import pytest
from processes import kill
from waiting import until

from conveyor_actors import StoreFull

DISK_MIB = 96
MORE_MIB = 400
MIN_FREE = "24MiB"


class SmallDisk:
    """A filesystem of its own."""

    def __init__(self, path):
        self.path = path
        self._filler = path / "filler"

    def resize(self, mib):
        subprocess.run(["mount", "-o", f"remount,size={mib}m", str(self.path)], check=True)

    def fill(self):
        """Somebody else takes all that is left."""
        with open(self._filler, "wb") as file, pytest.raises(OSError, match="No space left"):
            while True:
                os.posix_fallocate(file.fileno(), file.tell(), 4096)
                file.seek(4096, os.SEEK_CUR)

    def free(self):
        self._filler.unlink()


@pytest.fixture
def disk(home):
    path = home / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(path)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk needs the right to mount one: {mounted.stderr.strip()}")
    yield SmallDisk(path)
    subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def start(disk, start):
    start.data_dir = disk.path / "data"
    return start


@pytest.fixture
def supervisor(start):
    return start(supervisor={"min_free_disk": MIN_FREE})


def test_adds_are_refused_then_starts_are_held_and_all_goes_on_when_there_is_room(supervisor, connect, disk):
    conveyor = connect(supervisor)
    queue = conveyor.queue("q")
    queue.pause()
    added = 0
    with pytest.raises(StoreFull, match=r"min_free_disk is 24MiB: no jobs are accepted until there is more room"):
        while True:
            added += len(queue.add_many([("echo", os.urandom(2_000))] * 100))
    assert queue.counts()["waiting"] == added
    queue.resume()
    held = until(lambda: [text for text in conveyor.info().warnings if "accepted or started" in text])
    assert "what runs is still recorded" in held[0]
    counts = until(lambda: (found := queue.counts())["active"] == 0 and found)
    assert counts["completed"] > 0 and counts["waiting"] == added - counts["completed"] > 0
    disk.resize(MORE_MIB)
    until(lambda: queue.counts()["completed"] == added, seconds=60)
    assert queue.add("echo", "again").result("20s") == "again"
    assert conveyor.info().warnings == []


def test_what_runs_while_the_disk_is_full_is_recorded_and_the_next_supervisor_starts(
    supervisor, start, connect, disk, record, gate
):
    conveyor = connect(supervisor)
    queue, asked = conveyor.queue("q"), conveyor.queue("asked")
    asked.pause()
    queue.add_many([("echo", os.urandom(1_000))] * 1_000)
    until(lambda: queue.counts()["completed"] == 1_000)
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path, "tag": "done"})
    record.running(job.id)
    disk.fill()
    until(lambda: _is_refused(asked))
    gate.open()
    assert job.result("20s") == "done"
    kill(supervisor)
    start(supervisor={"min_free_disk": MIN_FREE})
    assert queue.counts()["completed"] == 1_001
    assert _is_refused(asked)
    disk.free()
    until(lambda: not _is_refused(asked))
    assert queue.add("echo", "again").result("20s") == "again"


def _is_refused(queue):
    try:
        queue.add("echo")
    except StoreFull:
        return True
    return False
