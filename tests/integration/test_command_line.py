"""`conveyor`: what it prints, in tables and in JSON, and with which code it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import is_alive
from waiting import until

OK, NO, USAGE, UNREACHABLE = 0, 1, 2, 3


@pytest.fixture
def supervisor(start):
    return start()


@pytest.fixture
def conveyor(supervisor, connect):
    return connect(supervisor)


@pytest.fixture
def run(supervisor):
    """`run("counts", ...)`: the command on this supervisor, to its end."""
    return lambda *arguments: command(*arguments, "--url", supervisor.url)


def command(*arguments, **environment):
    return ended(begun(*arguments, **environment))


def begun(*arguments, **environment):
    line = [str(Path(sys.executable).parent / "conveyor"), *arguments]
    variables = {**os.environ, "COLUMNS": "200", **environment}
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)


def ended(process):
    with process:
        stdout, stderr = process.communicate(timeout=30)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def test_counts(run, conveyor, queue):
    queue.add("echo").result("20s")
    conveyor.queue("later").add("whereabouts", delay="1h")
    conveyor.queue("later").pause()
    done = run("counts")
    assert done.returncode == OK
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.split()}
    assert rows["q"].split()[1:] == ["0", "0", "0", "0", "1", "0"]
    assert "paused" in rows["later"]
    read = run("counts", "--json")
    assert read.returncode == OK
    told = json.loads(read.stdout)
    assert told["q"]["counts"]["completed"] == 1
    assert told["later"]["counts"]["delayed"] == 1
    assert told["later"]["paused"] is True
    one = run("counts", "q", "--json")
    assert json.loads(one.stdout).keys() == {"q"}


def test_counts_of_a_queue_that_is_not_there(run):
    refused = run("counts", "nowhere")
    assert refused.returncode == NO
    assert "nowhere" in refused.stderr
    assert refused.stdout == ""


def test_ls(run, queue):
    done = queue.add("echo", id="fine")
    done.result("20s")
    queue.add("fail", {"message": "what went wrong"}, id="broken").wait("20s")
    listed = run("ls", "q")
    assert listed.returncode == OK
    assert "q/fine" in listed.stdout
    assert "what went wrong" in listed.stdout
    only = run("ls", "q", "--state", "failed", "--json")
    assert only.returncode == OK
    jobs = json.loads(only.stdout)
    assert [(job["id"], job["state"], job["failure"]["kind"]) for job in jobs] == [("broken", "failed", "error")]
    assert len(json.loads(run("ls", "q", "--limit", "1", "--json").stdout)) == 1


def test_ls_of_a_queue_that_is_not_there(run):
    refused = run("ls", "nothing")
    assert (refused.returncode, refused.stdout) == (NO, "")
    assert "there is no queue 'nothing'" in refused.stderr


def test_what_a_job_says_does_not_reach_the_terminal_as_commands(run, queue):
    rude = "\x1b]0;title\x07\x1b[2J\x9b31m"
    queue.add("fail", {"message": rude, "more": rude}, id="rude").wait("20s")
    for told in (run("ls", "q").stdout, run("show", "q/rude").stdout):
        assert "\\x1b[2J" in told
        assert not {"\x1b", "\x07", "\x9b"} & set(told)


def test_names_that_the_terminal_has_no_letters_for_are_told_all_the_same(supervisor, conveyor):
    conveyor.queue("größe").add("whereabouts", {"note": "日本"}, id="ä").result("20s")
    for arguments in (("counts",), ("ls", "größe"), ("show", "größe/ä"), ("show", "größe/ä", "--json")):
        told = command(*arguments, "--url", supervisor.url, PYTHONIOENCODING="ascii")
        assert (told.returncode, told.stderr) == (OK, "")


def test_a_time_that_is_none_is_refused_before_anything_is_asked(run):
    refused = run("stop", "--timeout", "soon")
    assert refused.returncode == USAGE
    assert "--timeout = 'soon' is not allowed" in refused.stderr


def test_ls_with_a_state_that_is_not_there(run):
    refused = run("ls", "q", "--state", "finished")
    assert refused.returncode == USAGE
    assert "completed" in refused.stderr


def test_show(run, queue):
    job = queue.add("crash", {"how": "kill", "when": "ö"}, metadata={"owner": "me"})
    job.result("20s")
    for name in (job.ref, job.id):
        shown = run("show", name)
        assert shown.returncode == OK
        assert "survived" in shown.stdout
        assert "SIGKILL" in shown.stdout
    read = run("show", job.ref, "--json")
    assert read.returncode == OK
    told = json.loads(read.stdout)
    assert told["returnvalue"] == "survived"
    assert told["data"] == {"how": "kill", "when": "ö"}
    assert told["metadata"] == {"owner": "me"}
    assert (told["stalled_count"], told["attempts_made"]) == (1, 1)
    assert [line["kind"] for line in told["history"]] == ["stalled", "completed"]


def test_show_prints_data_that_json_has_no_word_for(run, queue):
    job = queue.add("echo", {"bytes": b"\0\xff"})
    job.result("20s")
    assert run("show", job.ref).returncode == OK
    assert json.loads(run("show", job.ref, "--json").stdout)["state"] == "completed"


def test_show_of_a_job_that_is_not_there(run):
    refused = run("show", "q/nothing")
    assert refused.returncode == NO
    assert "q/nothing" in refused.stderr
    assert run("show", "not-a-ref").returncode == USAGE


def test_workers(run, conveyor, queue, record, gate):
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    pid = record.running(job.id)
    until(lambda: [worker for worker in conveyor.workers() if worker.state == "busy"])
    table = run("workers")
    assert table.returncode == OK
    assert str(pid) in table.stdout
    assert job.ref in table.stdout
    told = json.loads(run("workers", "--json").stdout)
    assert sorted(worker["pid"] for worker in told) == sorted(worker.pid for worker in conveyor.workers())
    assert [worker["job"] for worker in told if worker["pid"] == pid] == [job.ref]
    gate.open()
    job.result("20s")


def test_stop(run, supervisor):
    stopped = run("stop", "--json")
    assert stopped.returncode == OK
    assert json.loads(stopped.stdout) == {"stopped": supervisor.pid}
    assert supervisor.process.wait(10) == 0


def test_stop_waits_until_the_supervisor_is_gone(run, supervisor, queue, record):
    job = queue.add("slow", {"folder": record.folder, "seconds": 1})
    record.running(job.id)
    assert run("stop", "--finish").returncode == OK
    assert supervisor.process.wait(10) == 0
    assert record.ids("end") == [job.id]


def test_stop_with_a_time_of_its_own_returns_what_is_not_done_by_then(run, supervisor, start, queue, record):
    job = queue.add("waits-for-abort", {"folder": record.folder})
    record.running(job.id)
    assert run("stop", "--timeout", "100ms").returncode == OK
    assert supervisor.process.wait(10) == 0
    assert record.ids("aborted") == [job.id]


def test_stop_with_two_times_is_a_usage_error(run, supervisor):
    assert run("stop", "--timeout", "1s", "--finish").returncode == USAGE
    assert run("stop", "--timeout", "whenever").returncode == USAGE
    assert is_alive(supervisor.pid)


def test_a_supervisor_that_is_not_there_has_a_code_of_its_own(home):
    url = f"ipc://{home}/nobody.sock"
    commands = (("counts",), ("ls", "q"), ("workers",), ("show", "q/1"), ("stop",))
    for refused in map(ended, [begun(*arguments, "--url", url) for arguments in commands]):
        assert refused.returncode == UNREACHABLE
        assert url in refused.stderr
        assert "Traceback" not in refused.stderr
        assert refused.stdout == ""


def test_usage_errors(run):
    assert command().returncode == USAGE
    assert command("no-such-command").returncode == USAGE
    assert run("ls").returncode == USAGE
    assert run("ls", "q", "--limit", "0").returncode == USAGE
    assert command("counts", "--url", "http://localhost").returncode == USAGE
    assert command("--help").returncode == OK


def test_the_address_comes_from_the_environment_too(supervisor, queue):
    queue.add("echo").result("20s")
    read = command("counts", "--json", CONVEYOR_URL=supervisor.url)
    assert read.returncode == OK
    assert json.loads(read.stdout)["q"]["counts"]["completed"] == 1
