"""The data directory: made private, on a disk that LMDB can use, and held by one supervisor at a time.

Knows nothing of what is stored in it. While a DataDir is open, no other process has it open; the kernel gives
the lock back when this process ends, however it ends, and no child inherits it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from conveyor_actors.errors import DataDirError

PRIVATE: Final = 0o700
MOUNTINFO: Final = Path("/proc/self/mountinfo")

#: Filesystems that other machines share: there, a map or a lock of LMDB does not hold what it promises.
NETWORK_FILESYSTEMS: Final = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "coda", "ncpfs", "davfs"),
        *("glusterfs", "gpfs", "beegfs", "lustre", "orangefs", "pvfs2"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.davfs2", "fuse.smbnetfs"),
        *("fuse.s3fs", "fuse.mount-s3", "fuse.goofys", "fuse.gcsfuse", "fuse.rclone", "fuse.juicefs"),
        *("fuse.mfs", "fuse.moosefs"),
    }
)


class Mount(NamedTuple):
    """A mounted filesystem."""

    point: str
    filesystem: str


class DataDir:
    """An open data directory.

    >>> with DataDir.open(Path("data")) as data_dir:
    ...     data_dir.store
    """

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, path: Path) -> DataDir:
        """Create the directory where it is missing, check it and lock it; DataDirError says what is wrong."""
        path = path.absolute()
        try:
            _refuse_network(path)
            path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            _refuse_unfit(path)
            _make_private(path)
            lock_fd = _lock(path / "lock")
            try:
                (path / "run").mkdir(mode=PRIVATE, exist_ok=True)
                _make_private(path / "run")
            except BaseException:
                os.close(lock_fd)
                raise
        except FileExistsError as error:
            raise DataDirError(f"{error.filename} is not a directory: move it away, or change data_dir") from None
        except OSError as error:
            raise DataDirError(
                f"the data directory {path} cannot be used: {error.strerror} ({error.filename}). "
                "Check that it is on a writable disk, or change data_dir"
            ) from error
        return cls(path, lock_fd)

    @property
    def store(self) -> Path:
        """Where the LMDB environment is."""
        return self.path / "store"

    @property
    def run(self) -> Path:
        """Where sockets and boxes of the running processes are."""
        return self.path / "run"

    @property
    def lock_fd(self) -> int:
        """The descriptor that holds the lock; -1 after `close`."""
        return self._lock_fd

    def close(self) -> None:
        """Give the lock back. The lock file stays: removing it would let two supervisors in."""
        lock_fd, self._lock_fd = self._lock_fd, -1
        if lock_fd >= 0:
            os.close(lock_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def find_mount(path: str, mountinfo: str) -> Mount | None:
    """The mount that an absolute, resolved path is on, by the text of /proc/self/mountinfo."""
    found = None
    for line in mountinfo.split("\n"):
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts on one point the later hides the earlier.
        if inside and (found is None or len(point) >= len(found.point)):
            found = Mount(point, after.partition(" ")[0])
    return found


def _refuse_network(path: Path) -> None:
    try:
        mountinfo = MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    mount = find_mount(os.path.realpath(path), mountinfo)
    if mount is not None and mount.filesystem in NETWORK_FILESYSTEMS:
        raise DataDirError(
            f"the data directory {path} is on a network filesystem ({mount.filesystem} on {mount.point}): "
            "LMDB's locks and maps do not work there; put data_dir on a local disk"
        )


def _refuse_unfit(path: Path) -> None:
    owner, user = path.stat().st_uid, os.geteuid()
    if owner != user:
        raise DataDirError(
            f"the data directory {path} belongs to the user with id {owner}, this process runs as {user}: "
            "run the supervisor as its owner, or change data_dir"
        )
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise DataDirError(f"the data directory {path} is not writable: chmod u+rwx it, or change data_dir")


def _make_private(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & ~PRIVATE:
        path.chmod(mode & PRIVATE)


def _lock(path: Path) -> int:
    lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataDirError(
                f"the data directory {path.parent} is in use by another supervisor ({_holder(lock_fd)}): "
                "stop that one first, or give this one its own data_dir"
            ) from None
        # In this order: on a full disk a block that was given up cannot be had again.
        os.ftruncate(lock_fd, os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0))
    except BaseException:
        os.close(lock_fd)
        raise
    return lock_fd


def _holder(lock_fd: int) -> str:
    with contextlib.suppress(OSError, ValueError):
        return f"pid {int(os.pread(lock_fd, 32, 0))}"
    return "its pid is not recorded yet"
