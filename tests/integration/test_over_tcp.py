"""A supervisor that listens on a port serves it as it serves its socket: jobs, waits and events."""

import socket

from conveyor_actors import Conveyor


def free_port():
    """A port that is free, and the one for its events too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 2))
            except (OSError, OverflowError):
                continue
            return port


def test_jobs_and_events_travel_over_tcp(start):
    address = f"tcp://127.0.0.1:{free_port()}"
    ipc = f"ipc://{start.data_dir}/conveyor.sock"
    running = start(supervisor={"listen": [address, ipc]})
    assert running.url == address
    with Conveyor(address) as far, Conveyor(ipc) as near:
        with far.events("q", timeout="10s") as events:
            job = near.queue("q").add("echo", {"n": 1})
            assert far.get(job).result("10s") == {"n": 1}
            assert [next(events).type for _ in range(3)] == ["waiting", "active", "completed"]
        assert [each.id for each in far.queue("q").jobs("completed")] == [job.id]
