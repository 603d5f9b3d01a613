"""The heartbeat: a thread that writes the time into the box.

It tells that the interpreter runs; it says nothing of the job. Where a job holds the GIL no beat comes, and the
supervisor looks at the process itself.
"""

from __future__ import annotations

import threading
import time

from conveyor_actors.box import BEAT_NS, Box


def start(box: Box, beat_ms: int) -> int:
    """Starts beating for the life of the process; gives the thread's id as the kernel knows it."""
    slots = box.slots
    slots[BEAT_NS] = time.monotonic_ns()

    def beat() -> None:
        pause = beat_ms / 1000
        while True:
            time.sleep(pause)
            slots[BEAT_NS] = time.monotonic_ns()

    thread = threading.Thread(target=beat, name="conveyor-heartbeat", daemon=True)
    thread.start()
    assert thread.native_id is not None
    return thread.native_id
