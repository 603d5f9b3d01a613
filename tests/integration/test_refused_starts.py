"""A supervisor that cannot run says why, in one message that names what to change, and exits with a code of its own."""

import json
import os
import subprocess
import sys

import pytest
from processes import is_alive, kill

from conveyor_actors import SupervisorFailed

EXIT_CANNOT = 1
EXIT_CONFIG = 2


def run(*arguments, env=None):
    """`conveyor-supervisor`, to its end."""
    command = [sys.executable, "-m", "conveyor_actors.supervisor.main", *map(str, arguments)]
    environment = {**os.environ, **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment, check=False)


@pytest.fixture
def write(home):
    """`write(text)`: a conveyor.toml with this text."""

    def written(text):
        path = home / "conveyor.toml"
        path.write_text(text)
        return path

    return written


def test_a_data_dir_in_use_names_the_supervisor_that_uses_it(start, home):
    first = start()
    config = home / "second.json"
    config.write_text(json.dumps(start.config()))
    second = run("--config", config)
    assert second.returncode == EXIT_CANNOT
    assert str(first.pid) in second.stderr
    assert str(start.data_dir) in second.stderr
    assert "Traceback" not in second.stderr
    assert is_alive(first.pid)


def test_a_refused_second_supervisor_does_not_disturb_the_first(start, connect, home):
    first = start()
    queue = connect(first).queue("q")
    config = home / "second.json"
    config.write_text(json.dumps(start.config()))
    for _ in range(3):
        assert run("--config", config).returncode == EXIT_CANNOT
    assert queue.add("echo", "still here").result("20s") == "still here"


def test_a_socket_that_another_supervisor_serves_is_not_taken_from_it(start, connect, home):
    first = start()
    config = start.config(supervisor={"data_dir": str(home / "other"), "listen": [first.url]})
    (home / "second.json").write_text(json.dumps(config))
    second = run("--config", home / "second.json")
    assert second.returncode == EXIT_CONFIG
    assert f"another process listens on {first.url}" in second.stderr
    assert "Traceback" not in second.stderr
    assert connect(first).queue("q").add("echo", "still here").result("20s") == "still here"


def test_a_socket_that_was_left_behind_is_taken_over(start, connect, home):
    first = start()
    kill(first)
    assert (start.data_dir / "conveyor.sock").is_socket()
    assert connect(start()).queue("q").add("echo", "here").result("20s") == "here"


def test_a_data_dir_that_cannot_be_made_is_named(home, write):
    (home / "file").write_text("no folder")
    refused = run("--config", write('[supervisor]\ndata_dir = "file/data"\n'))
    assert refused.returncode == EXIT_CANNOT
    assert str(home / "file") in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_data_dir_that_is_a_file_is_named(home, write):
    (home / "data").write_text("no folder")
    refused = run("--config", write(""))
    assert refused.returncode == EXIT_CANNOT
    assert str(home / "data") in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_data_dir_that_is_not_writable_is_named(home, write):
    (home / "data").mkdir(mode=0o500)
    refused = run("--config", write(""))
    assert refused.returncode == EXIT_CANNOT
    assert str(home / "data") in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("arguments", [(), ("--check",)])
@pytest.mark.parametrize(
    ("text", "path"),
    [
        (f'data_dir = "{"d" * 120}"', "conveyor.sock.events"),
        ('listen = ["ipc://{}"]', ".events"),
        (f'data_dir = "{"d" * 120}"\nlisten = ["ipc://c.sock"]', "run/workers.sock"),
    ],
)
def test_a_socket_path_that_is_too_long_is_refused_with_its_bound(home, write, text, path, arguments):
    text = text.replace("{}", "s" * (105 - len(f"{home}/")))  # fits by itself
    refused = run("--config", write(f"[supervisor]\n{text}\n"), *arguments)
    assert refused.returncode == EXIT_CONFIG
    assert f"{path} has " in refused.stderr
    assert "at most 107 bytes" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert os.listdir(home) == ["conveyor.toml"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[supervisor]\nshutdown_timout = 5\n", "shutdown_timeout"),
        ("[pools.default]\nworker = 2\n", "workers"),
        ("[queues.images]\nlock_durations = 2\n", "lock_duration"),
        ("[supervisr]\n", "supervisor"),
        ("[pools.default]\nworkers = 0\n", "pools.default.workers"),
        ('[supervisor]\nshutdown_timeout = "soon"\n', "supervisor.shutdown_timeout"),
        ("this is no toml", "TOML"),
        ('[supervisor]\nlisten = ["tcp://0.0.0.0:7600"]\n', "insecure"),
    ],
)
def test_a_mistake_in_the_configuration_names_the_key_and_the_nearest_one(home, write, text, says):
    for arguments in ((), ("--check",)):
        refused = run("--config", write(text), *arguments)
        assert refused.returncode == EXIT_CONFIG
        assert says in refused.stderr
        assert "Traceback" not in refused.stderr
        assert not (home / "data").exists()


def test_a_config_that_is_not_there_is_named(home):
    refused = run("--config", home / "nowhere.toml")
    assert refused.returncode == EXIT_CONFIG
    assert "nowhere.toml" in refused.stderr


def test_check_accepts_what_is_right_and_touches_nothing(home, write):
    checked = run("--config", write("[pools.default]\nworkers = 2\n[queues.images]\nlock_duration = '1m'\n"), "--check")
    assert checked.returncode == 0
    assert "Traceback" not in checked.stderr
    assert not (home / "data").exists()


def test_check_reads_the_environment_too(write):
    config = write("[pools.default]\nworkers = 2\n")
    refused = run("--config", config, "--check", env={"CONVEYOR_POOLS_DEFAULT_WORKERS": "many"})
    assert refused.returncode == EXIT_CONFIG
    assert "CONVEYOR_POOLS_DEFAULT_WORKERS" in refused.stderr


@pytest.mark.parametrize("setting", ["supervisor.socket_mode=660", "http.token=12345", "pools.default.workers=3"])
def test_a_flag_is_read_like_a_variable(write, setting):
    checked = run("--config", write(""), "--check", "--set", setting)
    assert (checked.returncode, "is valid" in checked.stdout) == (0, True), checked.stderr


def test_an_unknown_flag_is_a_usage_error():
    assert run("--no-such-flag").returncode == EXIT_CONFIG


@pytest.mark.parametrize("moment", ["__init__", "run", "_turn"])
def test_an_error_that_nobody_expected_is_logged_in_one_line_and_told_to_the_starter(home, write, moment):
    reading, writing = os.pipe()
    code = (
        "import sys\n"
        "from conveyor_actors.supervisor import main\n"
        "def broken(*arguments): raise AssertionError('a defect\\nof two lines')\n"
        f"main.Loop.{moment} = broken\n"
        "main.main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "--config", write("[pools.default]\nworkers = 1\n")]
    with open(reading) as told:
        ended = subprocess.run(
            [*command, "--ready-fd", str(writing)], capture_output=True, text=True, timeout=30, pass_fds=(writing,)
        )
        os.close(writing)
        assert told.readline().endswith("AssertionError: a defect\n")
    assert ended.returncode == EXIT_CANNOT
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    (last,) = [line for line in lines if line["level"] == "critical"]
    assert "AssertionError: a defect" in last["message"]
    assert "Traceback" in last["traceback"] and "broken" in last["traceback"]


def test_a_start_from_python_says_why_it_failed(start):
    first = start()
    with pytest.raises(SupervisorFailed, match=rf"in use by another supervisor \(pid {first.pid}\)"):
        start()
