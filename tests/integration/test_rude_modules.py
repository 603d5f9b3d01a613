"""What handlers' modules do while they are imported harms neither their pool nor anybody else."""

import os
import resource
import signal
import time

import psutil
from processes import is_alive
from waiting import until

from conveyor_actors import Conveyor


def spawners_of(supervisor):
    return psutil.Process(supervisor.pid).children()


def test_a_death_is_seen_at_once_also_where_a_module_took_the_signals(start, connect):
    supervisor = start(pools={"default": {"imports": ["jobs", "touches_signals"]}})
    job = connect(supervisor).queue("q").add("crash", {"how": "kill"})
    assert job.result("5s") == "survived"
    assert [line.kind for line in job.history()] == ["stalled", "completed"]
    (spawner,) = spawners_of(supervisor)
    os.kill(spawner.pid, signal.SIGTERM)
    assert is_alive(spawner.pid)


def test_a_supervisor_stops_at_once_while_its_pools_import(start):
    with start.process(pools={name: {"imports": ["imports_for_ever"]} for name in ("one", "two", "three")}) as process:
        until(lambda: len(psutil.Process(process.pid).children()) == 3)
        with Conveyor(start.url) as conveyor:
            assert conveyor.info().state == "starting"
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
        assert time.monotonic() - began < 5


def test_a_spawner_that_imports_dies_with_its_supervisor(start):
    with start.process(pools={"default": {"imports": ["imports_for_ever"]}}) as process:
        (spawner,) = until(lambda: psutil.Process(process.pid).children())
        until(lambda: psutil.Process(spawner.pid).memory_info().rss > 15_000_000)  # past its own imports
        process.kill()
        process.wait()
        until(lambda: not is_alive(spawner.pid))
    start()


def test_handlers_may_open_as_many_files_as_whoever_started_the_supervisor(start):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
    try:
        with start.process() as process:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            with Conveyor(start.url) as conveyor:
                assert conveyor.queue("q").add("file-limit").result("20s") == 500
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[0] == before[1]
            process.terminate()
            process.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_a_dead_spawner_leaves_is_killed_also_where_it_cannot_be_recognised(start, connect, record):
    supervisor = start(workers=1)
    conveyor = connect(supervisor)
    child = conveyor.queue("q").add("hidden-child").result("20s")
    assert is_alive(child)
    (spawner,) = spawners_of(supervisor)
    spawner.kill()
    until(lambda: not is_alive(child))
    assert conveyor.queue("q").add("echo", "on").result("20s") == "on"
