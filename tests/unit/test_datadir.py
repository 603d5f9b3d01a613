"""The data directory is private, local, and held by one supervisor at a time."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conveyor_actors.errors import DataDirError
from conveyor_actors.supervisor import datadir
from conveyor_actors.supervisor.datadir import DataDir, Mount, find_mount

HOLD_THE_LOCK = """
import sys
from pathlib import Path
from conveyor_actors.supervisor.datadir import DataDir
DataDir.open(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has `tmp_path/data` open until it is killed."""
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(tmp_path / "data")]
    environment = os.environ | {"PYTHONPATH": str(Path(datadir.__file__).parents[2])}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_made_with_its_parents_and_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    with DataDir.open(path) as data_dir:
        assert data_dir.path == path
        assert data_dir.store == path / "store"
        assert data_dir.run == path / "run"
        assert mode(path) == mode(data_dir.run) == 0o700
        assert mode(path / "lock") == 0o600
        assert (path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with DataDir.open(Path("data")) as data_dir:
        assert data_dir.path == tmp_path / "data"


def test_permissions_wider_than_private_are_tightened(tmp_path: Path) -> None:
    run = tmp_path / "data" / "run"
    run.mkdir(parents=True)
    run.chmod(0o777)
    run.parent.chmod(0o755)
    with DataDir.open(run.parent):
        assert mode(run.parent) == mode(run) == 0o700


def test_a_second_supervisor_is_refused_and_told_the_pid_of_the_first(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(DataDirError, match=rf"in use by another supervisor \(pid {holder.pid}\)"):
        DataDir.open(tmp_path / "data")
    assert (tmp_path / "data" / "lock").read_text() == f"{holder.pid}\n"


def test_a_killed_supervisor_leaves_nothing_locked(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with DataDir.open(tmp_path / "data"):
        assert (tmp_path / "data" / "lock").read_text() == f"{os.getpid()}\n"


def test_a_lock_without_a_pid_is_still_a_lock(tmp_path: Path) -> None:
    tmp_path.joinpath("data").mkdir()
    with (tmp_path / "data" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DataDirError, match="its pid is not recorded yet"):
            DataDir.open(tmp_path / "data")


def test_the_same_process_cannot_open_it_twice(tmp_path: Path) -> None:
    with DataDir.open(tmp_path), pytest.raises(DataDirError, match=f"pid {os.getpid()}"):
        DataDir.open(tmp_path)


def test_closing_twice_is_closing_once_and_frees_the_lock(tmp_path: Path) -> None:
    data_dir = DataDir.open(tmp_path)
    data_dir.close()
    data_dir.close()
    assert data_dir.lock_fd == -1
    DataDir.open(tmp_path).close()


def test_a_refusal_leaves_no_descriptor_open(tmp_path: Path) -> None:
    with DataDir.open(tmp_path):
        before = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(DataDirError):
            DataDir.open(tmp_path)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_no_program_that_is_started_inherits_the_lock(tmp_path: Path) -> None:
    with DataDir.open(tmp_path) as data_dir:
        assert not os.get_inheritable(data_dir.lock_fd)
        listing = "import os; print(*map(os.path.realpath, os.scandir('/proc/self/fd')))"
        command = [sys.executable, "-c", listing]
        seen = subprocess.run(command, close_fds=False, capture_output=True, text=True, check=True).stdout
        assert str(tmp_path / "lock") not in seen


@pytest.mark.parametrize("name", ["data", "data/inside"])
def test_a_file_in_its_place_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(DataDirError, match=r"(?i)not a directory.*data_dir"):
        DataDir.open(tmp_path / name)


def test_a_file_in_the_place_of_run_is_refused_and_the_lock_given_back(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(DataDirError, match="run is not a directory"):
        DataDir.open(tmp_path)
    (tmp_path / "run").unlink()
    DataDir.open(tmp_path).close()


def test_a_place_where_nothing_can_be_made_is_refused() -> None:
    with pytest.raises(DataDirError, match=r"/proc/conveyor cannot be used: .*change data_dir"):
        DataDir.open(Path("/proc/conveyor"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_write_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataDirError, match="not writable"):
        DataDir.open(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(DataDirError, match="belongs to the user with id 12345"):
        DataDir.open(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_network_filesystem_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / {tmp_path}/share rw - nfs4 host:/x rw\n")
    monkeypatch.setattr(datadir, "MOUNTINFO", mountinfo)
    with pytest.raises(DataDirError, match=r"nfs4 on .*/share.*put data_dir on a local disk"):
        DataDir.open(tmp_path / "share" / "data")
    assert not (tmp_path / "share").exists()
    DataDir.open(tmp_path / "local").close()


def test_without_a_mount_table_the_directory_is_taken_as_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datadir, "MOUNTINFO", tmp_path / "missing")
    DataDir.open(tmp_path / "data").close()


MOUNTINFO = r"""27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:30 / /home rw,relatime shared:5 master:2 - nfs4 server:/home rw,vers=4.2
41 40 0:31 / /home/local rw - xfs /dev/vdb rw
42 27 0:32 / /mnt/my\040share rw - cifs //host/share rw
43 27 0:33 / /srv rw - ext4 /dev/vdc rw
44 27 0:34 / /srv rw - fuse.sshfs host:/srv rw
garbage
45 27 0:35 /
"""


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/", Mount("/", "ext4")),
        ("/var/lib", Mount("/", "ext4")),
        ("/home", Mount("/home", "nfs4")),
        ("/home/me/data", Mount("/home", "nfs4")),
        ("/homeless", Mount("/", "ext4")),
        ("/home/local/data", Mount("/home/local", "xfs")),
        ("/mnt/my share/data", Mount("/mnt/my share", "cifs")),
        ("/srv/data", Mount("/srv", "fuse.sshfs")),
    ],
)
def test_a_path_is_on_the_innermost_and_latest_mount_above_it(path: str, mount: Mount) -> None:
    assert find_mount(path, MOUNTINFO) == mount


def test_an_empty_mount_table_has_no_answer() -> None:
    assert find_mount("/data", "") is None


def test_the_mount_of_a_real_path_is_found() -> None:
    mount = find_mount("/proc/self", Path("/proc/self/mountinfo").read_text())
    assert mount is not None
    assert mount.filesystem == "proc"
