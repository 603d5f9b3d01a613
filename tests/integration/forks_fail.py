"""Handlers of a pool whose spawner cannot fork while a file is there, as on a host that is out of processes."""

import errno
import os
from pathlib import Path

from jobs import *  # noqa: F403

_fork = os.fork


def fork():
    if Path(os.environ["TEST_NO_FORKS"]).exists():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    return _fork()


os.fork = fork
