"""Handlers of the integration tests. What ran is recorded in files, outside of the system under test."""

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from conveyor_actors import JobContext, Unrecoverable, exponential, handler


class Resize(msgspec.Struct):
    path: str
    width: int = 640


def note(folder: str, text: str) -> None:
    """Appends a line; one write of a short line is atomic."""
    with open(Path(folder) / "record", "ab", buffering=0) as record:
        record.write(text.encode() + b"\n")


@handler("echo", queue="q")
def echo(data):
    return data


@handler("resize", queue="q")
def resize(data: Resize, job: JobContext):
    return {"path": data.path, "width": data.width, "attempt": job.attempt}


@handler("record", queue="q")
def record(data, job: JobContext):
    note(data["folder"], f"{job.id} {data.get('tag', '')}")
    return data.get("tag")


@handler("slow", queue="q")
def slow(data, job: JobContext):
    """Notes its start, then takes its time."""
    note(data["folder"], f"start {job.id} {os.getpid()}")
    time.sleep(data["seconds"])
    note(data["folder"], f"end {job.id} {os.getpid()}")
    return "done"


@handler("burn", queue="q")
def burn(data, job: JobContext):
    note(data["folder"], f"start {job.id} {os.getpid()}")
    until = time.monotonic() + data["seconds"]
    while time.monotonic() < until:
        pass
    return "burnt"


def hold_gil(seconds: float) -> int:
    """Computes in C, without ever letting go of the GIL, for about so long."""
    done = 0
    until = time.monotonic() + seconds
    size = 4_000_000
    while time.monotonic() < until:
        before = time.monotonic()
        pow(3, size)
        done += 1
        took = time.monotonic() - before
        left = until - time.monotonic()
        if took > 0 and left > 0:
            size = int(min(size * 1.5, max(1_000_000, size * (left / took) ** 0.6)))
    return done


@handler("hold-gil", queue="q")
def hold_gil_job(data, job: JobContext):
    if data.get("folder"):
        note(data["folder"], f"start {job.id} {os.getpid()}")
    if data.get("seconds"):
        sys.setswitchinterval(1000)  # as good as a C extension that never lets go
        try:
            hold_gil(data["seconds"])
        finally:
            sys.setswitchinterval(0.005)
    return "held"


@handler("crash", queue="q")
def crash(data, job: JobContext):
    """Dies in the given way as long as it was not stalled `survive` times before."""
    if data.get("folder"):
        note(data["folder"], f"start {job.id} {os.getpid()}")
    if job.stalled_count < data.get("times", 1):
        how = data["how"]
        if how == "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            os._exit(int(how))
        time.sleep(10)
    return "survived"


@handler("fail", queue="q")
def fail(data, job: JobContext):
    """Fails so many times, then succeeds."""
    if data.get("folder"):
        note(data["folder"], f"{job.id} {job.attempt} {time.time()}")
    if job.attempt <= data.get("times", 1_000_000):
        raise ValueError(data.get("message", "as told"))
    return job.attempt


@handler("patient", queue="q", attempts=4, backoff=exponential("20ms"))
def patient(data, job: JobContext):
    if job.attempt < 3:
        raise ValueError("not yet")
    return job.attempt


@handler("unrecoverable", queue="q", attempts=5)
def unrecoverable(data):
    raise Unrecoverable("never again")


@handler("picky", queue="q", attempts=3, retry_on=(OSError,), give_up_on=FileNotFoundError)
def picky(data, job: JobContext):
    if data.get("folder"):
        note(data["folder"], f"{job.id} {job.attempt}")
    raise {"os": OSError("again"), "missing": FileNotFoundError("gone"), "value": ValueError("no")}[data["kind"]]


@handler("exits", queue="q")
def exits(data):
    sys.exit(3)


@handler("unserialisable", queue="q")
def unserialisable(data):
    return {"files": [1, object()]}


@handler("big", queue="q")
def big(data):
    return b"x" * data["bytes"]


@handler("children", queue="q")
def children(data, job: JobContext):
    """Leaves processes behind in every way there is, and dies or returns."""
    import subprocess

    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    plain = subprocess.Popen(command)
    own_session = subprocess.Popen(command, start_new_session=True)
    daemon = "import os,sys,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(600)"
    subprocess.run([sys.executable, "-c", daemon], check=True)
    note(data["folder"], f"pids {plain.pid} {own_session.pid}")
    if job.stalled_count == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    for process in (plain, own_session):
        process.kill()
        process.wait()
    return "ok"


@handler("waits-for-abort", queue="q")
def waits_for_abort(data, job: JobContext):
    note(data["folder"], f"start {job.id} {os.getpid()}")
    while not job.aborted:
        time.sleep(0.01)
    note(data["folder"], f"aborted {job.id}")
    return "stopped early"


@handler("sleeps-with-gil", queue="q")
def sleeps_with_gil(data, job: JobContext):
    """Blocked in C with the GIL held: no heartbeat, no progress."""
    import ctypes

    note(data["folder"], f"start {job.id} {os.getpid()}")
    if job.stalled_count == 0:
        ctypes.PyDLL(None).usleep(int(data["seconds"] * 1_000_000))
    return "woke up"


def wait_for(path: str) -> None:
    """Returns when the file is there, or after a minute, so that no test is survived by its handlers."""
    until = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.005)


@handler("gated", queue="q")
def gated(data, job: JobContext):
    """Notes its start, and ends when the gate is open; without a gate it is a very short job."""
    if "gate" in data:
        note(data["folder"], f"start {job.id} {os.getpid()}")
        wait_for(data["gate"])
        note(data["folder"], f"end {job.id} {os.getpid()}")
    return data.get("tag")


@handler("stamped", queue="q")
def stamped(data, job: JobContext):
    now = time.time()
    note(data["folder"], f"{job.id} {now!r}")
    return now


@handler("whereabouts")
def whereabouts(data, job: JobContext):
    """Of any queue."""
    return {"pid": os.getpid(), "queue": job.queue, "pool": os.environ.get("TEST_POOL")}


@handler("crash-anywhere")
def crash_anywhere(data):
    os._exit(9)


@handler("busy-child", queue="q")
def busy_child(data, job: JobContext):
    """Waits for a child that computes, with the GIL held if so told."""
    import ctypes
    import subprocess

    note(data["folder"], f"start {job.id} {os.getpid()}")
    code = f"import time\nend = time.monotonic() + {data['seconds']}\nwhile time.monotonic() < end: pass"
    child = subprocess.Popen([sys.executable, "-c", code])
    if data["with_gil"]:
        ctypes.PyDLL(None).waitid(1, child.pid, ctypes.create_string_buffer(128), 4 | 0x01000000)  # leaves it to wait()
    return child.wait()


SLEEPER = "import time; time.sleep(600)"
DAEMON = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(600)"


@handler("family", queue="q")
def family(data, job: JobContext):
    """Notes who is left of an earlier family, founds one, a daemon among it, and waits for the gate."""
    import subprocess

    from processes import marked

    note(data["folder"], f"found {job.id} {len(marked(data['mark']))}")
    subprocess.Popen([sys.executable, "-c", SLEEPER, data["mark"]])
    subprocess.Popen([sys.executable, "-c", SLEEPER, data["mark"]], start_new_session=True)
    subprocess.run([sys.executable, "-c", DAEMON, data["mark"]], check=True)
    deadline = time.monotonic() + 30
    while len(marked(data["mark"])) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    note(data["folder"], f"start {job.id} {os.getpid()}")
    wait_for(data["gate"])
    return "ok"


@handler("file-limit", queue="q")
def file_limit(data):
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@handler("hidden-child", queue="q")
def hidden_child(data):
    """Leaves a child behind that carries nothing of our environment."""
    import subprocess

    return subprocess.Popen([sys.executable, "-c", SLEEPER], env={}).pid


@handler("prints", queue="q")
def prints(data):
    print(data)  # noqa: T201
