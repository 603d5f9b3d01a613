"""A config is complete and checked, or its error says where, which key, which value and what to do."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from conveyor_actors.config import (
    Config,
    CurveConfig,
    HttpConfig,
    PoolConfig,
    QueueConfig,
    RateConfig,
    RetentionConfig,
    SupervisorConfig,
    client_url,
    find_config,
    load_config,
    not_effective,
    parse_config,
    refuse_unsupported,
)
from conveyor_actors.errors import InvalidConfig
from conveyor_actors.model import Keep, KeepRule

ROOT = Path("/srv/app")
SAMPLE = Path(__file__).parents[2] / "configs" / "conveyor.toml"


def config(
    toml: str = "", environ: Mapping[str, str] | None = None, overrides: Mapping[str, object] | None = None
) -> Config:
    document = tomllib.loads(toml)
    return parse_config(document, root=ROOT, environ=environ or {}, overrides=overrides or {}, source="conveyor.toml")


def refusal(
    toml: str = "", environ: Mapping[str, str] | None = None, overrides: Mapping[str, object] | None = None
) -> str:
    with pytest.raises(InvalidConfig) as refused:
        config(toml, environ, overrides)
    return str(refused.value)


# -- defaults ---------------------------------------------------------------------------------------


def test_an_empty_config_is_complete() -> None:
    assert config() == Config(
        root=ROOT,
        supervisor=SupervisorConfig(
            data_dir=ROOT / "data",
            listen=("ipc:///srv/app/data/conveyor.sock",),
            socket_mode=0o600,
            socket_group=None,
            durability="fsync",
            shutdown_timeout_ms=30_000,
            orphan_grace_ms=30_000,
            min_free_disk=2**30,
            insecure=False,
            webhook_private=True,
            webhook_secret=None,
            max_payload=64 * 2**20,
        ),
        pools={
            "default": PoolConfig(
                name="default",
                queues=("*",),
                workers=os.cpu_count() or 1,
                imports=(),
                pythonpath=(),
                env={},
                threads_per_worker=1,
                start_method="fork",
                max_jobs_per_worker=0,
                memory_recycle=0,
                memory_budget=0,
                restart_intensity=10,
                restart_period_ms=60_000,
                allow_pickle=False,
                paused=False,
                nice=0,
            )
        },
        queues={},
        schedules={},
        curve=None,
        http=None,
        retention=RetentionConfig(
            stale_after_ms=7 * 86_400_000, delete_after_ms=30 * 86_400_000, on_stale=None, on_delete=None
        ),
    )


def test_a_queue_without_a_table_has_the_defaults() -> None:
    assert config("[queues.images]\nmax_stalled_count = 3").queue("other") == QueueConfig(
        max_global_concurrency=None,
        rate=None,
        lock_duration_ms=30_000,
        stalled_interval_ms=30_000,
        max_stalled_count=1,
        remove_on_complete=None,
        remove_on_fail=None,
        webhook=None,
        max_size=None,
        group_concurrency=None,
        group_rate=None,
    )


def test_the_sample_file_holds_the_defaults() -> None:
    assert load_config(SAMPLE, environ={}) == parse_config({}, root=SAMPLE.parent, environ={})


def test_every_commented_key_of_the_sample_file_is_a_real_one() -> None:
    content = SAMPLE.read_text()
    commented = re.sub(r"^# (?=\[\w+[.\w]*\]$|\w+ = )", "", content, flags=re.MULTILINE)
    document = tomllib.loads(commented)
    full = parse_config(document, root=ROOT, environ={})
    assert full.queues["images"].lock_duration_ms == QueueConfig().lock_duration_ms
    assert set(document) == {"supervisor", "pools", "queues", "schedules", "curve", "http", "retention"}
    for written, struct in (
        (document["supervisor"], SupervisorConfig),
        (document["pools"]["default"], PoolConfig),
        (document["queues"]["images"], QueueConfig),
        (document["curve"], CurveConfig),
        (document["http"], HttpConfig),
        (document["retention"], RetentionConfig),
    ):
        assert set(written) == {field.removesuffix("_ms") for field in struct.__struct_fields__} - {"name"}


# -- what is read -----------------------------------------------------------------------------------


def test_every_key_is_read_into_its_unit() -> None:
    full = config(
        """
        [supervisor]
        data_dir = "state"
        listen = ["ipc://run/c.sock", "tcp://127.0.0.1:7600"]
        socket_mode = "0660"
        socket_group = "www-data"
        durability = "relaxed"
        shutdown_timeout = 0
        orphan_grace = "1m"
        min_free_disk = "2GB"
        insecure = true
        webhook_private = false
        webhook_secret = "s"
        max_payload = 1024

        [pools.gpu]
        queues = ["ml", "*"]
        workers = 2
        imports = ["myapp.tasks", "other"]
        pythonpath = ["src", "/opt/lib"]
        env = { A = "1" }
        threads_per_worker = 4
        start_method = "spawn"
        max_jobs_per_worker = 100
        memory_recycle = "1GiB"
        memory_budget = "8GiB"
        restart_intensity = 3
        restart_period = 1.5
        allow_pickle = true
        paused = true
        nice = 10

        [queues."my images"]
        max_global_concurrency = 8
        rate = { max = 100, duration = "1s" }
        lock_duration = "100ms"
        stalled_interval = "100ms"
        max_stalled_count = 0
        remove_on_complete = { count = 10000, age = "24h" }
        remove_on_fail = false
        webhook = "https://example.org/hook"
        max_size = 9
        group_concurrency = 1
        group_rate = { max = 1, duration = 60 }

        [schedules.nightly]
        queue = "reports"
        name = "send"
        data = { a = 1 }
        cron = "0 3 * * *"

        [curve]
        public_key_file = "a.pub"
        secret_key_file = "/etc/a.key"
        allow = ["k"]

        [http]
        listen = "0.0.0.0:80"
        token = "t"
        read_only = true

        [retention]
        stale_after = "1d"
        delete_after = "2d"
        on_stale = "s"
        on_delete = "d"
        """
    )
    assert full == Config(
        root=ROOT,
        supervisor=SupervisorConfig(
            data_dir=ROOT / "state",
            listen=("ipc:///srv/app/run/c.sock", "tcp://127.0.0.1:7600"),
            socket_mode=0o660,
            socket_group="www-data",
            durability="relaxed",
            shutdown_timeout_ms=0,
            orphan_grace_ms=60_000,
            min_free_disk=2 * 10**9,
            insecure=True,
            webhook_private=False,
            webhook_secret="s",
            max_payload=1024,
        ),
        pools={
            "gpu": PoolConfig(
                name="gpu",
                queues=("ml", "*"),
                workers=2,
                imports=("myapp.tasks", "other"),
                pythonpath=(ROOT / "src", Path("/opt/lib")),
                env={"A": "1"},
                threads_per_worker=4,
                start_method="spawn",
                max_jobs_per_worker=100,
                memory_recycle=2**30,
                memory_budget=8 * 2**30,
                restart_intensity=3,
                restart_period_ms=1_500,
                allow_pickle=True,
                paused=True,
                nice=10,
            )
        },
        queues={
            "my images": QueueConfig(
                max_global_concurrency=8,
                rate=RateConfig(max=100, duration_ms=1_000),
                lock_duration_ms=100,
                stalled_interval_ms=100,
                max_stalled_count=0,
                remove_on_complete=KeepRule(count=10_000, age_ms=86_400_000),
                remove_on_fail=KeepRule(),
                webhook="https://example.org/hook",
                max_size=9,
                group_concurrency=1,
                group_rate=RateConfig(max=1, duration_ms=60_000),
            )
        },
        schedules={"nightly": {"queue": "reports", "name": "send", "data": {"a": 1}, "cron": "0 3 * * *"}},
        curve=CurveConfig(public_key_file=ROOT / "a.pub", secret_key_file=Path("/etc/a.key"), allow=("k",)),
        http=HttpConfig(listen="0.0.0.0:80", token="t", read_only=True),
        retention=RetentionConfig(
            stale_after_ms=86_400_000, delete_after_ms=2 * 86_400_000, on_stale="s", on_delete="d"
        ),
    )


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("true", KeepRule(count=0)),
        ("false", KeepRule()),
        ("5", KeepRule(count=5)),
        ("0", KeepRule(count=0)),
        ("{ count = 5 }", KeepRule(count=5)),
        ("{ age = '1h' }", KeepRule(age_ms=3_600_000)),
    ],
)
def test_retention_of_a_queue_can_be_written_in_four_ways(written: str, kept: KeepRule) -> None:
    assert config(f"[queues.a]\nremove_on_complete = {written}").queue("a").remove_on_complete == kept


def test_an_empty_table_counts_as_there() -> None:
    read = config("[pools.a]\n[queues.q]\n[http]")
    assert list(read.pools) == ["a"]
    assert read.queues == {"q": QueueConfig()}
    assert read.http == HttpConfig()


def test_python_values_and_none_for_left_out_are_fine_in_a_dict() -> None:
    read = parse_config(
        {
            "supervisor": {
                "data_dir": Path("d"),
                "shutdown_timeout": timedelta(seconds=5),
                "socket_group": None,
            },
            "pools": {"default": {"queues": ("a",), "workers": None}},
            "http": None,
        },
        root=ROOT,
        environ={},
    )
    assert read.supervisor.data_dir == ROOT / "d"
    assert read.supervisor.shutdown_timeout_ms == 5_000
    assert read.pools["default"] == PoolConfig(name="default", queues=("a",))
    assert read.http is None


def test_the_listen_address_follows_data_dir() -> None:
    assert config(overrides={"supervisor.data_dir": "/var/c"}).supervisor.listen == ("ipc:///var/c/conveyor.sock",)


# -- files ------------------------------------------------------------------------------------------


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conveyor.toml").write_text("[pools.default]\npythonpath = ['../lib']\n")
    monkeypatch.chdir(tmp_path)
    read = load_config("conveyor.toml", environ={})
    assert read.root == tmp_path
    assert read.supervisor.data_dir == tmp_path / "data"
    assert read.pools["default"].pythonpath == (tmp_path.parent / "lib",)
    assert load_config("conveyor.toml", root=Path("/r"), environ={}).supervisor.data_dir == Path("/r/data")


def test_a_json_file_of_the_same_shape_gives_the_same_config(tmp_path: Path) -> None:
    document = {"supervisor": {"durability": "relaxed"}, "pools": {"a": {"queues": ["x"], "workers": 3}}}
    (tmp_path / "c.json").write_text(json.dumps(document))
    (tmp_path / "c.toml").write_text("supervisor.durability = 'relaxed'\n[pools.a]\nqueues=['x']\nworkers=3")
    assert load_config(tmp_path / "c.json", environ={}) == load_config(tmp_path / "c.toml", environ={})


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("c.toml", b"[supervisor]\ndata_dir = \n", "not valid TOML: .*line 2"),
        ("c.json", b'{\n"supervisor": }', "not valid JSON: .*line 2"),
        ("c.json", b"[]", "has to hold an object"),
        ("c.toml", b"a = '\xff'", "not UTF-8 text, at byte 5"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_told_by_name_and_line(
    tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidConfig, match=f"{name}: .*{expected}"):
        load_config(tmp_path / name, environ={})


def test_a_missing_file_is_told_with_a_way_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"no\.toml: there is no such config file.*an empty file will do"):
        load_config(tmp_path / "no.toml", environ={})
    with pytest.raises(InvalidConfig, match="cannot be read: Is a directory"):
        load_config(tmp_path, environ={})


def test_the_nearest_file_at_or_above_is_found(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert find_config(deep) is None
    (tmp_path / "conveyor.toml").write_text("")
    assert find_config(deep) == tmp_path / "conveyor.toml"
    (deep / "conveyor.toml").write_text("")
    assert find_config(deep) == deep / "conveyor.toml"
    assert find_config(deep / ".." / "..") == tmp_path / "conveyor.toml"
    (tmp_path / "a" / "conveyor.toml").mkdir()
    assert find_config(tmp_path / "a") == tmp_path / "conveyor.toml"


# -- the environment and the given options ----------------------------------------------------------


def test_the_environment_wins_over_the_file_and_options_over_both() -> None:
    toml = "[pools.default]\nworkers = 1\nnice = 1\nthreads_per_worker = 1"
    environ = {"CONVEYOR_POOLS_DEFAULT_WORKERS": "2", "CONVEYOR_POOLS_DEFAULT_NICE": "2"}
    pool = config(toml, environ, {"pools.default.workers": 3}).pools["default"]
    assert (pool.workers, pool.nice, pool.threads_per_worker) == (3, 2, 1)


@pytest.mark.parametrize(
    ("variable", "content", "path", "expected"),
    [
        ("SUPERVISOR_DATA_DIR", "/x", "supervisor.data_dir", Path("/x")),
        ("SUPERVISOR_DATA_DIR", "2024-01-01", "supervisor.data_dir", ROOT / "2024-01-01"),
        ("SUPERVISOR_INSECURE", "true", "supervisor.insecure", True),
        ("SUPERVISOR_LISTEN", '["tcp://127.0.0.1:1"]', "supervisor.listen", ("tcp://127.0.0.1:1",)),
        ("SUPERVISOR_SOCKET_MODE", "0660", "supervisor.socket_mode", 0o660),
        ("SUPERVISOR_SOCKET_MODE", "660", "supervisor.socket_mode", 0o660),
        ("SUPERVISOR_SHUTDOWN_TIMEOUT", "1m30s", "supervisor.shutdown_timeout_ms", 90_000),
        ("SUPERVISOR_SHUTDOWN_TIMEOUT", "2.5", "supervisor.shutdown_timeout_ms", 2_500),
        ("HTTP_TOKEN", "12345", "http.token", "12345"),
        ("HTTP_TOKEN", "a\nb = 1", "http.token", "a\nb = 1"),
        ("RETENTION_STALE_AFTER", "1d", "retention.stale_after_ms", 86_400_000),
    ],
)
def test_a_variable_and_an_option_are_read_as_toml_or_as_plain_text(
    variable: str, content: str, path: str, expected: object
) -> None:
    key = variable.lower().replace("_", ".", 1)
    for value in (config(environ={f"CONVEYOR_{variable}": content}), config(overrides={key: content})):
        read: Any = value
        for part in path.split("."):
            read = getattr(read, part)
        assert read == expected


def test_a_variable_reaches_the_table_that_is_in_the_file_whatever_its_spelling() -> None:
    toml = "[queues.Images-Large]\n[queues.my_group]\n[pools.default]"
    environ = {
        "CONVEYOR_QUEUES_IMAGES_LARGE_LOCK_DURATION": "1m",
        "CONVEYOR_QUEUES_MY_GROUP_RATE": "{ max = 1, duration = '1s' }",
        "CONVEYOR_QUEUES_MY_GROUP_GROUP_RATE": "{ max = 2, duration = '1s' }",
        "CONVEYOR_POOLS_DEFAULT_QUEUES": '["a", "b"]',
        "CONVEYOR_POOLS_DEFAULT_ENV": '{ A = "1" }',
    }
    read = config(toml, environ)
    assert list(read.queues) == ["Images-Large", "my_group"]
    assert read.queues["Images-Large"].lock_duration_ms == 60_000
    assert read.queues["my_group"].rate == RateConfig(max=1, duration_ms=1_000)
    assert read.queues["my_group"].group_rate == RateConfig(max=2, duration_ms=1_000)
    assert read.pools["default"].queues == ("a", "b")
    assert read.pools["default"].env == {"A": "1"}


def test_a_variable_makes_a_table_that_is_not_in_the_file_by_the_longest_key() -> None:
    read = config(
        environ={
            "CONVEYOR_QUEUES_MY_GROUP_RATE": "{ max = 1, duration = 1 }",
            "CONVEYOR_POOLS_BIG_GPU_WORKERS": "2",
            "CONVEYOR_SCHEDULES_NIGHTLY_CRON": "0 3 * * *",
        }
    )
    assert read.queues == {"my": QueueConfig(group_rate=RateConfig(max=1, duration_ms=1_000))}
    assert read.pools == {"big_gpu": PoolConfig(name="big_gpu", workers=2)}
    assert read.schedules == {"nightly": {"cron": "0 3 * * *"}}


def test_variables_outside_the_sections_are_left_alone() -> None:
    environ = {"CONVEYOR_URL": "x", "CONVEYOR_SUPERVISOR": "x", "CONVEYOR_OTHER_KEY": "x", "HOME": "/"}
    assert config(environ=environ) == config()


def test_a_variable_nobody_knows_is_refused_with_the_nearest() -> None:
    message = refusal(environ={"CONVEYOR_SUPERVISOR_DATADIR": "x"})
    assert message.startswith("$CONVEYOR_SUPERVISOR_DATADIR: ")
    assert "did you mean 'CONVEYOR_SUPERVISOR_DATA_DIR'?" in message
    message = refusal("[pools.big-gpu]", environ={"CONVEYOR_POOLS_BIG_GPU_WORKER": "1"})
    assert "did you mean 'CONVEYOR_POOLS_BIG_GPU_WORKERS'?" in message
    assert "CONVEYOR_POOLS_<NAME>_<KEY>" in refusal(environ={"CONVEYOR_POOLS_WORKERS": "1"})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("CONVEYOR_SUPERVISR_DATA_DIR", "CONVEYOR_SUPERVISOR_DATA_DIR"),
        ("CONVEYOR_POOL_DEFAULT_WORKERS", "CONVEYOR_POOLS_DEFAULT_WORKERS"),
    ],
)
def test_a_misspelt_section_in_the_environment_is_refused(variable: str, meant: str) -> None:
    assert refusal(environ={variable: "2"}).endswith(f"(did you mean ${meant}?)")


@pytest.mark.parametrize("variable", ["CONVEYOR_URL", "CONVEYOR_STORE_ID", "CONVEYOR_HOME", "CONVEYOR_BELT_SPEED"])
def test_other_variables_that_begin_alike_are_left_alone(variable: str) -> None:
    assert config(environ={variable: "2"}) == config()


def test_a_variable_that_could_mean_two_tables_is_refused() -> None:
    toml = "[queues.a-b]\n[queues.a_b]"
    assert "could mean 'a-b' or 'a_b'" in refusal(toml, {"CONVEYOR_QUEUES_A_B_MAX_SIZE": "1"})


def test_a_wrong_value_is_blamed_on_where_it_came_from() -> None:
    toml = "[pools.default]\nworkers = 0"
    assert refusal(toml).startswith("conveyor.toml: pools.default.workers = 0 is not allowed: use a whole")
    variable = {"CONVEYOR_POOLS_DEFAULT_WORKERS": "many"}
    assert refusal(toml, variable).startswith("$CONVEYOR_POOLS_DEFAULT_WORKERS: pools.default.workers = 'many' ")
    given = {"pools.default.workers": -1}
    assert refusal(toml, variable, given).startswith("the given options: pools.default.workers = -1 is not")


def test_options_that_were_not_given_change_nothing_and_names_may_have_dots() -> None:
    toml = "[pools.default]\nworkers = 3\n[queues.'a.b']\nmax_size = 1"
    read = config(toml, overrides={"pools.default.workers": None, "queues.a.b.max_size": 2})
    assert read.pools["default"].workers == 3
    assert read.queues["a.b"].max_size == 2


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("supervisor.datadir", "supervisor.datadir .did you mean 'data_dir'"),
        ("supervisor", "use supervisor.KEY"),
        ("supervisor.listen.x", "use supervisor.KEY"),
        ("pools.workers", "use pools.NAME.KEY"),
        ("pool.default.workers", "in no known section .did you mean 'pools'"),
    ],
)
def test_an_option_that_is_no_key_is_refused(key: str, expected: str) -> None:
    assert re.search(expected, refusal(overrides={key: 1}))


# -- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("[supervisr]", "there is no section 'supervisr' (did you mean 'supervisor'?)"),
        ("[xyz]", "there is no section 'xyz'; there are supervisor, pools"),
        ("data_dir = 'x'", "there is no section 'data_dir': data_dir is a key of [supervisor]"),
        ("workers = 3", "workers is a key of [pools.NAME]"),
        ("[supervisor]\nlissten = []", "there is no key supervisor.lissten (did you mean 'listen'?)"),
        ("[pools.a]\nworker = 1", "there is no key pools.a.worker (did you mean 'workers'?)"),
        ("[queues.'a b']\nratte = 1", "there is no key queues.\"a b\".ratte (did you mean 'rate'?)"),
        ("[queues.a]\nzzz = 1", "there is no key queues.a.zzz; [queues.a] has max_global_concurrency, rate"),
        ("[schedules.a]\ncrom = 1", "there is no key schedules.a.crom (did you mean 'cron'?)"),
        ("[http]\nport = 1", "there is no key http.port"),
        ("[retention]\nstale_afterr = 1", "(did you mean 'stale_after'?)"),
        ("[curve]\nsecret = 1", "there is no key curve.secret"),
        ("supervisor = 3", "supervisor = 3 is not allowed: use a table, [supervisor]"),
        ("[pools]\nworkers = 3", "[pools] holds a table for each name"),
    ],
)
def test_what_nobody_knows_is_refused_with_source_key_and_the_nearest(toml: str, expected: str) -> None:
    message = refusal(toml)
    assert message.startswith("conveyor.toml: ")
    assert expected in message


@pytest.mark.parametrize(
    ("section", "key", "wrong"),
    [
        ("supervisor", "data_dir", "3"),
        ("supervisor", "data_dir", "''"),
        ("supervisor", "listen", "'ipc://x'"),
        ("supervisor", "listen", "[]"),
        ("supervisor", "socket_mode", "384"),
        ("supervisor", "socket_mode", "'0999'"),
        ("supervisor", "socket_mode", "'rw'"),
        ("supervisor", "socket_group", "''"),
        ("supervisor", "durability", "'never'"),
        ("supervisor", "shutdown_timeout", "'soon'"),
        ("supervisor", "shutdown_timeout", "-1"),
        ("supervisor", "min_free_disk", "'much'"),
        ("supervisor", "insecure", "1"),
        ("supervisor", "insecure", "'true'"),
        ("supervisor", "max_payload", "0"),
        ("supervisor", "max_payload", "'2GiB'"),
        ("pools.a", "queues", "'images'"),
        ("pools.a", "queues", "[]"),
        ("pools.a", "workers", "0"),
        ("pools.a", "workers", "1025"),
        ("pools.a", "workers", "true"),
        ("pools.a", "workers", "1.0"),
        ("pools.a", "workers", "'4'"),
        ("pools.a", "imports", "'myapp'"),
        ("pools.a", "env", "['A=1']"),
        ("pools.a", "env", "{ 'A=B' = '1' }"),
        ("pools.a", "threads_per_worker", "0"),
        ("pools.a", "start_method", "'forkserver'"),
        ("pools.a", "max_jobs_per_worker", "-1"),
        ("pools.a", "restart_intensity", "0"),
        ("pools.a", "restart_period", "0"),
        ("pools.a", "allow_pickle", "'no'"),
        ("pools.a", "nice", "20"),
        ("queues.a", "max_global_concurrency", "0"),
        ("queues.a", "rate", "100"),
        ("queues.a", "rate", "{ max = 1 }"),
        ("queues.a", "rate", "{ max = 1, duration = 1, per = 1 }"),
        ("queues.a", "lock_duration", "'99ms'"),
        ("queues.a", "stalled_interval", "'99ms'"),
        ("queues.a", "max_stalled_count", "-1"),
        ("queues.a", "remove_on_complete", "-1"),
        ("queues.a", "remove_on_complete", "'all'"),
        ("queues.a", "remove_on_complete", "{}"),
        ("queues.a", "remove_on_fail", "{ cuont = 1 }"),
        ("queues.a", "webhook", "'example.org'"),
        ("http", "listen", "7601"),
        ("http", "listen", "'127.0.0.1:0'"),
        ("retention", "stale_after", "'never'"),
    ],
)
def test_a_wrong_value_is_refused_with_source_key_value_and_what_is_allowed(section: str, key: str, wrong: str) -> None:
    value = tomllib.loads(f"value = {wrong}")["value"]
    message = refusal(f"[{section}]\n{key} = {wrong}")
    assert message.startswith(f"conveyor.toml: {section}.{key} = {value!r} is not allowed: use ")


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("[pools.a]\nqueues = ['x', 3]", "pools.a.queues[1] = 3 is not allowed"),
        ("[pools.a]\nqueues = ['x/y']", "pools.a.queues[0] = 'x/y' is not allowed: use a queue name"),
        ("[pools.a]\nimports = ['my app']", "pools.a.imports[0] = 'my app' is not allowed"),
        ("[pools.a]\nimports = ['./tasks.py']", "such as 'myapp.tasks'"),
        ("[pools.a]\nenv = { A = 1 }", "pools.a.env.A = 1 is not allowed: use text in quotes"),
        ("[queues.a]\nrate = { max = 0, duration = 1 }", "queues.a.rate.max = 0 is not allowed"),
        ("[queues.a]\nremove_on_fail = { age = 'x' }", "queues.a.remove_on_fail.age = 'x' is not allowed"),
        ("[curve]\npublic_key_file = 'x'", "curve.secret_key_file is missing"),
    ],
)
def test_a_wrong_value_inside_another_is_named_by_its_place(toml: str, expected: str) -> None:
    assert expected in refusal(toml)


@pytest.mark.parametrize("name", ["a b", "a.b", "a/b", "ä", "", "x" * 201])
def test_a_pool_name_is_made_of_letters_digits_dash_and_underscore(name: str) -> None:
    assert "letters, digits, '-' and '_'" in refusal(f"[pools.{json.dumps(name)}]\nworkers = 1")
    assert list(config("[pools.Big-gpu_2]").pools) == ["Big-gpu_2"]


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "a\nb", "a\x7fb", "x" * 201, "ä" * 101])
def test_a_queue_name_is_short_and_has_no_separators(name: str) -> None:
    assert "without '/', ':' or control characters" in refusal(f"[queues.{json.dumps(name)}]")
    assert list(config("[queues.'my images.ä']").queues) == ["my images.ä"]


def test_a_table_for_all_queues_is_refused() -> None:
    assert "write a table for each queue" in refusal("[queues.'*']\nmax_size = 1")


# -- addresses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:7600",
        "127.0.0.1:7600",
        "ipc://",
        "ipc://@abstract",
        "ipc://*",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:*",
        "tcp://127.0.0.1:0",
        "tcp://127.0.0.1:65534",  # its events would be on the port 65536
        "tcp://127.0.0.1:65536",
        "tcp://:7600",
        "tcp://::1:7600",
    ],
)
def test_an_address_that_cannot_be_listened_on_is_refused(address: str) -> None:
    assert "supervisor.listen[0] = " in refusal(f"[supervisor]\nlisten = ['{address}']")


def test_a_socket_path_that_is_too_long_is_refused_with_its_length_and_a_way_out() -> None:
    longest = "/" + "x" * (107 - len("//conveyor.sock.events"))
    assert config(f"[supervisor]\ndata_dir = '{longest}'").supervisor.listen[0].endswith("conveyor.sock")
    message = refusal(f"[supervisor]\ndata_dir = '{longest}y'")
    assert f"{longest}y/conveyor.sock.events has 108" in message
    assert "use a shorter data_dir or listen" in message
    given = refusal(environ={"CONVEYOR_SUPERVISOR_DATA_DIR": f"{longest}y"})
    assert given.startswith("$CONVEYOR_SUPERVISOR_DATA_DIR: supervisor.data_dir = ")


def test_the_socket_for_events_beside_each_address_has_to_fit_too() -> None:
    longest = f"/{'ä' * 49}x"
    assert config(f"[supervisor]\nlisten = ['ipc://{longest}']").supervisor.listen == (f"ipc://{longest}",)
    message = refusal(f"[supervisor]\nlisten = ['ipc://c', 'ipc://{longest}y']")
    assert message.startswith("conveyor.toml: supervisor.listen[1] = ")
    assert f"{longest}y.events has 108" in message


def test_the_socket_for_the_workers_has_to_fit_wherever_clients_connect() -> None:
    longest = "/" + "x" * (107 - len("//run/workers.sock"))
    listen = "listen = ['ipc://c', 'tcp://127.0.0.1:7600']"
    assert config(f"[supervisor]\ndata_dir = '{longest}'\n{listen}").supervisor.data_dir == Path(longest)
    message = refusal(f"[supervisor]\ndata_dir = '{longest}y'\n{listen}")
    assert message.startswith("conveyor.toml: supervisor.data_dir = ")
    assert f"{longest}y/run/workers.sock has 108" in message


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "10.0.0.1", "[::]", "example.org", "eth0"])
def test_plain_tcp_beyond_this_machine_needs_keys_or_an_explicit_word(host: str) -> None:
    toml = f"[supervisor]\nlisten = ['tcp://{host}:7600']\n"
    message = refusal(toml)
    assert message.startswith(f"conveyor.toml: supervisor.listen has 'tcp://{host}:7600'")
    assert "supervisor.insecure = true" in message
    assert config(f"{toml}insecure = true").supervisor.insecure
    assert config(f"{toml}[curve]\npublic_key_file = 'p'\nsecret_key_file = 's'").curve is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_plain_tcp_on_this_machine_is_fine(host: str) -> None:
    assert config(f"[supervisor]\nlisten = ['tcp://{host}:7600']").supervisor.listen == (f"tcp://{host}:7600",)


def test_http_beyond_this_machine_needs_a_token() -> None:
    toml = "[http]\nlisten = '0.0.0.0:7601'\n"
    assert "set http.token" in refusal(toml)
    assert config(f"{toml}token = 'x'").http == HttpConfig(listen="0.0.0.0:7601", token="x")


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("tcp://0.0.0.0:7600", "tcp://127.0.0.1:7600"),
        ("tcp://*:7600", "tcp://127.0.0.1:7600"),
        ("tcp://[::]:7600", "tcp://[::1]:7600"),
        ("tcp://127.0.0.1:7600", "tcp://127.0.0.1:7600"),
        ("ipc://c.sock", "ipc:///srv/app/c.sock"),
    ],
)
def test_a_client_is_given_the_first_address_as_it_can_connect_to_it(listen: str, url: str) -> None:
    assert client_url(config(f"[supervisor]\ninsecure = true\nlisten = ['{listen}', 'ipc://b']")) == url


# -- what this version does not do ------------------------------------------------------------------


def test_nothing_is_told_of_a_config_that_is_all_effective() -> None:
    assert not_effective(config()) == []
    effective = """
        [supervisor]
        shutdown_timeout = 1
        [pools.default]
        threads_per_worker = 2
        env = { A = "1" }
        pythonpath = ["src"]
        [queues.a]
        lock_duration = "1s"
        remove_on_complete = 5
        """
    assert not_effective(config(effective)) == []


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ("[supervisor]\nwebhook_secret = 'x'", "supervisor.webhook_secret"),
        ("[supervisor]\norphan_grace = '5s'", "supervisor.orphan_grace"),
        ("[pools.a]\nstart_method = 'spawn'", "pools.a.start_method"),
        ("[pools.a]\nmax_jobs_per_worker = 5", "pools.a.max_jobs_per_worker"),
        ("[pools.a]\nmemory_recycle = '1GiB'", "pools.a.memory_recycle"),
        ("[pools.a]\nmemory_budget = '1GiB'", "pools.a.memory_budget"),
        ("[pools.a]\nallow_pickle = true", "pools.a.allow_pickle"),
        ("[pools.a]\npaused = true", "pools.a.paused"),
        ("[pools.a]\nnice = 5", "pools.a.nice"),
        ("[queues.a]\nmax_global_concurrency = 5", "queues.a.max_global_concurrency"),
        ("[queues.a]\nrate = { max = 1, duration = 1 }", "queues.a.rate"),
        ("[queues.a]\nmax_size = 5", "queues.a.max_size"),
        ("[queues.a]\ngroup_concurrency = 5", "queues.a.group_concurrency"),
        ("[queues.a]\ngroup_rate = { max = 1, duration = 1 }", "queues.a.group_rate"),
        ("[queues.a]\nwebhook = 'http://x/'", "queues.a.webhook"),
        ("[queues.a]\nremove_on_fail = { age = 5 }", "queues.a.remove_on_fail.age"),
        ("[schedules.nightly]\ncron = '* * * * *'", "[schedules.nightly]"),
        ("[http]", "[http]"),
        ("[retention]\nstale_after = '1d'", "retention.stale_after"),
        ("[retention]\non_delete = 'x'", "retention.on_delete"),
    ],
)
def test_a_key_without_effect_is_told_by_name(toml: str, key: str) -> None:
    (sentence,) = not_effective(config(toml))
    assert sentence.startswith(f"{key} has no effect in this version: ")


def test_keys_are_not_left_out_in_silence_where_they_are_needed() -> None:
    keys = "[curve]\npublic_key_file = 'p'\nsecret_key_file = 's'\n"
    for listen in ("ipc://c.sock", "tcp://127.0.0.1:7600"):
        chosen = config(f"{keys}[supervisor]\nlisten = ['{listen}']")
        refuse_unsupported(chosen)
        assert not_effective(chosen) == ["[curve] has no effect in this version: connections are not encrypted"]
    beyond = f"{keys}[supervisor]\nlisten = ['tcp://0.0.0.0:7600']\n"
    refuse_unsupported(config(f"{beyond}insecure = true"))
    with pytest.raises(InvalidConfig, match=r"listen has 'tcp://0.0.0.0:7600', and CURVE keys are not used"):
        refuse_unsupported(config(beyond))


def test_the_sockets_of_the_workers_are_not_for_clients() -> None:
    message = refusal("[supervisor]\nlisten = ['ipc://data/run/workers.sock']")
    assert "a path outside /srv/app/data/run, which is for workers" in message


def test_a_group_that_cannot_reach_the_socket_is_told_of() -> None:
    group = "[supervisor]\nsocket_group = 'www-data'\nsocket_mode = '0660'\n"
    (sentence,) = not_effective(config(group))
    assert sentence.startswith("supervisor.socket_group has no effect")
    assert not_effective(config(f"{group}listen = ['ipc:///run/conveyor.sock']")) == []


@pytest.mark.parametrize("document", [{1: {}}, {"pools": {1: {}}}, {"supervisor": {1: 2}}])
def test_a_key_that_is_no_text_is_refused(document: dict[Any, Any]) -> None:
    with pytest.raises(InvalidConfig, match="the key 1 is not allowed: keys are text"):
        parse_config(document)


def test_a_dict_may_say_keep_as_add_does() -> None:
    document = {"queues": {"q": {"remove_on_complete": Keep(5, "1h"), "remove_on_fail": Keep()}}}
    queue = parse_config(document).queues["q"]
    assert (queue.remove_on_complete, queue.remove_on_fail) == (KeepRule(5, 3_600_000), KeepRule())
