"""No child of the supervisor holds its store, its lock or its sockets: LMDB and ZeroMQ break across fork."""

import os
import re
from pathlib import Path

from processes import is_alive, kill, tree_of


def open_files(pid):
    """What the descriptors of a process point to."""
    return {os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")}


def mapped_files(pid):
    return {line.split()[5] for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if len(line.split()) > 5}


def of_the_store(files, data_dir):
    """Those in the data dir, without the boxes that a worker shares with its supervisor."""
    return {file for file in files if file.startswith(str(data_dir)) and not file.startswith(str(data_dir / "run"))}


def test_workers_and_spawners_hold_nothing_of_the_store(start, connect, record, gate):
    supervisor = start(workers=2)
    queue = connect(supervisor).queue("q")
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    worker = record.running(job.id)
    children = [process.pid for process in tree_of(supervisor.pid)]
    assert worker in children
    assert len(children) >= 3

    held = of_the_store(open_files(supervisor.pid) | mapped_files(supervisor.pid), start.data_dir)
    assert any(file.endswith("data.mdb") for file in held)
    assert any(file.endswith("lock.mdb") for file in held)
    assert len(held) > 2, f"the lock of the data dir is not among {held}"
    for pid in children:
        theirs = open_files(pid) | mapped_files(pid)
        assert not of_the_store(theirs, start.data_dir)
        assert not [file for file in theirs if re.search(r"(data|lock)\.mdb", file)]
    gate.open()
    job.result("20s")


def test_workers_and_spawners_share_no_socket_with_the_supervisor(start, connect, record, gate):
    supervisor = start(workers=2)
    job = connect(supervisor).queue("q").add("gated", {"folder": record.folder, "gate": gate.path})
    record.running(job.id)
    ours = {file for file in open_files(supervisor.pid) if file.startswith("socket:")}
    assert ours
    for process in tree_of(supervisor.pid):
        assert not ours & open_files(process.pid)
    gate.open()
    job.result("20s")


def test_workers_share_no_socket_with_each_other_or_their_spawner(start):
    supervisor = start(workers=3)
    sockets = {
        process.pid: {file for file in open_files(process.pid) if file.startswith("socket:")}
        for process in tree_of(supervisor.pid)
    }
    everything = [file for files in sockets.values() for file in files]
    assert len(everything) == len(set(everything))


def test_a_child_of_a_handler_inherits_nothing_of_ours(start, connect, record, gate):
    supervisor = start(workers=1)
    queue = connect(supervisor).queue("q")
    mark = f"heirs-{os.getpid()}"
    job = queue.add("family", {"folder": record.folder, "gate": gate.path, "mark": mark})
    worker = record.running(job.id)
    for process in tree_of(worker):
        named = {file for file in open_files(process.pid) if file.startswith((str(start.data_dir), "socket:"))}
        assert not named
    gate.open()
    job.result("20s")


def test_workers_that_outlive_a_killed_supervisor_do_not_lock_the_data_dir(start, connect, record, gate):
    supervisor = start(workers=1)
    job = connect(supervisor).queue("q").add("gated", {"folder": record.folder, "gate": gate.path, "tag": "done"})
    record.running(job.id)
    kill(supervisor)
    assert is_alive(start(workers=1).pid)
    gate.open()
    assert job.result("20s") == "done"


def test_the_data_dir_belongs_to_its_user_alone(start):
    start()
    assert start.data_dir.stat().st_mode & 0o777 == 0o700
    assert (start.data_dir / "conveyor.sock").stat().st_mode & 0o777 == 0o600
    for path in start.data_dir.rglob("*.mdb"):
        assert path.stat().st_mode & 0o077 == 0
