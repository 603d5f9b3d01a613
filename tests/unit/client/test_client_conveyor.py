"""Where the supervisor is looked for, what it tells of itself, and what the package exports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fake_supervisor import FakeSupervisor

import conveyor_actors
from conveyor_actors import Conveyor, Info, InvalidOption, UsageError, wire
from conveyor_actors.model import StoreInfo


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CONVEYOR_URL", raising=False)


def test_the_address_is_the_argument_else_the_variable_else_the_nearest_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conveyor.toml").write_text('[supervisor]\nlisten = ["ipc://run/c.sock"]\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert Conveyor().url == f"ipc://{tmp_path}/run/c.sock"
    monkeypatch.setenv("CONVEYOR_URL", "tcp://127.0.0.1:7600")
    assert Conveyor().url == "tcp://127.0.0.1:7600"
    assert Conveyor("ipc:///other.sock").url == "ipc:///other.sock"


def test_without_any_address_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Conveyor()
    assert all(word in str(caught.value) for word in ("Conveyor(url)", "CONVEYOR_URL", "conveyor.toml", str(tmp_path)))


def test_a_relative_path_is_fixed_when_it_is_given(tmp_path: Path) -> None:
    assert Conveyor("ipc://data/c.sock").url == f"ipc://{tmp_path}/data/c.sock"
    assert Conveyor("ipc://@abstract").url == "ipc://@abstract"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ipc://",
        "data/c.sock",
        "http://x:1",
        "tcp://host",
        "tcp://host:0",
        "tcp://host:99999",
        5,
        "ipc:///" + "x" * 107,
    ],
)
def test_an_address_that_cannot_be_is_refused(url: Any) -> None:
    with pytest.raises(InvalidOption, match="url"):
        Conveyor(url)


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVEYOR_URL", "nonsense")
    with pytest.raises(InvalidOption, match="CONVEYOR_URL"):
        Conveyor()


def test_options_are_checked() -> None:
    for wrong in ({"timeout": 0}, {"timeout": "soon"}, {"timeout": None}, {"curve": "keys"}):
        with pytest.raises(InvalidOption):
            Conveyor("ipc:///x.sock", **wrong)


def test_what_the_supervisor_tells(start: Callable[..., FakeSupervisor], connect: Callable[..., Conveyor]) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    info = Info("running", "0.1.0", 1, 1, now, {"added": 3}, [], [], StoreInfo("/d", 1, 2), ["a warning"])
    start(answers={wire.GetInfo: wire.InfoReply(info)})
    conveyor = connect()
    assert conveyor.info() == info
    assert [worker.id for worker in conveyor.workers()] == ["w-1"]
    assert [queue.name for queue in conveyor.queues()] == ["images"]
    assert repr(conveyor) == f"<Conveyor {conveyor.url}>"


def test_stop_says_how_long_jobs_may_take(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    conveyor.stop()
    conveyor.stop("5s")
    conveyor.stop(finish=True)
    with pytest.raises(InvalidOption, match="either"):
        conveyor.stop("5s", finish=True)
    stops = [request.body.timeout_ms for request in fake.received if isinstance(request.body, wire.Stop)]
    assert stops == [None, 5000, -1]


# -- the package --------------------------------------------------------------------------------------------


def test_every_public_name_is_there() -> None:
    for name in conveyor_actors.__all__:
        assert getattr(conveyor_actors, name) is not None
    assert set(conveyor_actors.__all__) <= set(dir(conveyor_actors))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        conveyor_actors.nothing  # noqa: B018


def test_importing_the_package_does_not_import_the_client() -> None:
    program = (
        "import sys; import conveyor_actors; "
        "print([name for name in sys.modules if name.startswith(('zmq', 'conveyor_actors.client'))]); "
        "from conveyor_actors import Conveyor"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
