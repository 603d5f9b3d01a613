"""Unix sockets by their paths: how long one may be, and whether anybody listens there.

Knows nothing of what is said on them.
"""

from __future__ import annotations

import socket
from typing import Final

SCHEME: Final = "ipc://"
#: `sun_path` of a Unix socket address has 108 bytes, the last of them zero.
PATH_BYTES_MAX: Final = 107


def absence(address: str) -> str | None:
    """Why nothing can be reached at an ipc address; None if something listens, or cannot be asked (tcp)."""
    if not address.startswith(SCHEME):
        return None
    path = address.removeprefix(SCHEME)
    if path.startswith("@"):
        path = "\0" + path[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:  # it listens, and has much to do
            return None
        except FileNotFoundError:
            return "there is no such socket"
        except ConnectionRefusedError:
            return "the socket is there but nobody listens"
        except PermissionError:
            return "this user may not open the socket"
        except OSError as error:
            return f"the socket cannot be opened: {error.strerror or error}"
    return None
