"""A supervisor as a subprocess: ready when it is started, gone when it is closed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from conveyor_actors import InvalidConfig, InvalidOption, Keep, Supervisor, SupervisorFailed, UsageError
from conveyor_actors.client import supervisor as supervisor_module
from conveyor_actors.client.supervisor import _plain
from conveyor_actors.config import parse_config


@pytest.fixture(autouse=True)
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor_module, "_MODULE", "stub_supervisor")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setenv("STUB_LOG", str(tmp_path / "log.json"))
    monkeypatch.setenv("STUB_MODE", "ready")


def told(tmp_path: Path) -> dict[str, Any]:
    return json.loads((tmp_path / "log.json").read_text())  # type: ignore[no-any-return]


CONFIG: dict[str, Any] = {"supervisor": {"listen": ["ipc://s"], "shutdown_timeout": timedelta(seconds=1)}}


def test_a_dict_is_handed_over_in_a_private_file_that_is_gone_afterwards(tmp_path: Path) -> None:
    with Supervisor(CONFIG) as supervisor:
        assert supervisor.url == f"ipc://{tmp_path}/s"
        assert supervisor.pid is not None and supervisor.returncode is None
        assert os.getpgid(supervisor.pid) != os.getpgid(0)
        log = told(tmp_path)
        assert log["mode"] == 0o600 and log["arguments"]["--root"] == str(tmp_path)
        assert log["document"] == {"supervisor": {"listen": ["ipc://s"], "shutdown_timeout": 1.0}}
        assert not Path(log["arguments"]["--config"]).exists()
    assert supervisor.returncode == 0
    supervisor.close()


def test_a_file_is_handed_over_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "conveyor.toml").write_text('[supervisor]\nlisten = ["ipc://s"]\n')
    with Supervisor("conveyor.toml") as supervisor:
        assert supervisor.connect().url == supervisor.url == f"ipc://{tmp_path}/s"
        arguments = told(tmp_path)["arguments"]
        assert arguments["--config"] == str(tmp_path / "conveyor.toml") and "--root" not in arguments
        with pytest.raises(UsageError, match="started before"):
            supervisor.start()


def test_one_that_ends_before_it_is_ready_is_an_error_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_MODE", "fails")
    with pytest.raises(SupervisorFailed, match="exited with status 7"):
        Supervisor(CONFIG).start()


def test_one_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_MODE", "stubborn")
    monkeypatch.setattr("conveyor_actors.client.supervisor._STOP_MARGIN_MS", 100)
    supervisor = Supervisor(CONFIG)
    supervisor.start()
    supervisor.close(timeout="50ms")
    assert supervisor.returncode == -signal.SIGKILL


def test_an_interrupted_start_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_MODE", "slow")
    supervisor = Supervisor(CONFIG)

    def interrupt() -> None:
        while not (tmp_path / "log.json").exists():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        supervisor.start()
    thread.join()
    assert supervisor.returncode is not None


def test_a_config_that_cannot_be_is_refused_here(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig):
        Supervisor({"supervisor": {"no_such_key": 1}})
    with pytest.raises(InvalidConfig):
        Supervisor(tmp_path / "missing.toml")
    with pytest.raises(InvalidOption, match="config"):
        Supervisor(5)  # type: ignore[arg-type]
    supervisor = Supervisor(CONFIG)
    assert (supervisor.pid, supervisor.returncode) == (None, None)
    supervisor.close()


def test_a_config_in_python_may_have_what_add_takes() -> None:
    document = {"queues": {"q": {"remove_on_complete": Keep(5), "remove_on_fail": Keep(), "lock_duration": "1m"}}}
    encoded = json.loads(json.dumps(document, default=_plain))
    assert encoded["queues"]["q"]["remove_on_complete"] == {"count": 5, "age": None}
    assert encoded["queues"]["q"]["remove_on_fail"] is False
    assert parse_config(encoded) == parse_config(document)
