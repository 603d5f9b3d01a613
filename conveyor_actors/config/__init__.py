"""conveyor.toml as typed, checked and complete values: defaults filled in, paths absolute, durations in ms.

Knows nothing of sockets, stores or processes, and never creates a file. A Config that exists is valid and
complete, and a key that is not known was refused, not passed over.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from conveyor_actors.config import sources, values
from conveyor_actors.config.model import (
    WORKERS_MAX,
    Config,
    CurveConfig,
    HttpConfig,
    PoolConfig,
    QueueConfig,
    RateConfig,
    RetentionConfig,
    SupervisorConfig,
)
from conveyor_actors.config.sources import Setting, Settings, Table, dotted
from conveyor_actors.config.support import not_effective, refuse_unsupported
from conveyor_actors.config.values import Reader
from conveyor_actors.errors import InvalidConfig, InvalidOption

__all__ = [
    "Config",
    "CurveConfig",
    "HttpConfig",
    "PoolConfig",
    "QueueConfig",
    "RateConfig",
    "RetentionConfig",
    "SupervisorConfig",
    "client_url",
    "find_config",
    "load_config",
    "not_effective",
    "parse_config",
    "refuse_unsupported",
]

CONFIG_NAME: Final = "conveyor.toml"
#: Where in the data directory the supervisor listens to its workers.
WORKERS_SOCKET: Final = "run/workers.sock"
#: Workers beat eight times in a lock_duration and twice in a stalled_interval; much more often is a busy loop.
LIVENESS_MIN_MS: Final = 100
PAYLOAD_BYTES_MAX: Final = 1024**3

T = TypeVar("T", bound=msgspec.Struct)

_SCHEDULE_KEYS: Final = (
    *("queue", "name", "data", "cron", "every", "tz", "limit", "start", "end", "immediately"),
    *("catch_up", "overlap", "priority", "lifo", "attempts", "backoff", "timeout", "idle_timeout"),
    *("memory", "ttl", "remove_on_complete", "remove_on_fail", "dedup", "group", "webhook"),
    *("fail_parent_on_child_failure", "metadata"),
)


def find_config(start: Path) -> Path | None:
    """The nearest conveyor.toml in `start` or a folder above it."""
    start = values.absolute(start)
    paths = (folder / CONFIG_NAME for folder in (start, *start.parents))
    return next((path for path in paths if path.is_file()), None)


def load_config(
    path: Path | str,
    *,
    root: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, object] = {},
) -> Config:
    """The config of a TOML (or .json) file; `CONVEYOR_*` variables win over it, `overrides` over both."""
    document = sources.read_document(Path(path))
    folder = values.absolute(path).parent
    return parse_config(document, root=root or folder, environ=environ, overrides=overrides, source=str(path))


def parse_config(
    document: Mapping[str, Any],
    *,
    root: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, object] = {},
    source: str = "the config",
) -> Config:
    """The config of nested tables as they stand in a file.

    >>> parse_config({"pools": {"default": {"workers": 4}}}).pools["default"].workers
    4
    """
    root = values.absolute(root or Path.cwd())
    layout = _layout(root)
    base = sources.from_document(document, source, layout)
    settings = sources.overlay(
        base,
        sources.from_environment(environ, layout, base),
        sources.from_overrides(overrides, layout),
    )
    read = {table: _read_table(table, keys, layout[table[0]]) for table, keys in settings.items()}
    _check_names(settings, source)
    config = _build(root, read, settings, source)
    _check_exposure(config, settings, source)
    return config


def client_url(config: Config) -> str:
    """The first address of the supervisor, as a client on the same machine connects to it."""
    address = config.supervisor.listen[0]
    for everywhere, here in (("0.0.0.0", "127.0.0.1"), ("*", "127.0.0.1"), ("[::]", "[::1]")):
        if address.startswith(f"tcp://{everywhere}:"):
            return address.replace(everywhere, here, 1)
    return address


# -- the keys and what each may be ------------------------------------------------------------------


def _layout(root: Path) -> dict[str, dict[str, Reader]]:
    return {
        "supervisor": {
            "data_dir": values.path_under(root),
            "listen": values.list_of(values.listen_under(root), "['ipc://data/conveyor.sock']", at_least=1),
            "socket_mode": values.octal_mode,
            "socket_group": values.text,
            "durability": values.one_of("fsync", "relaxed"),
            "shutdown_timeout": values.duration(),
            "orphan_grace": values.duration(),
            "min_free_disk": values.size(),
            "insecure": values.flag,
            "webhook_private": values.flag,
            "webhook_secret": values.text,
            "max_payload": values.size(1, PAYLOAD_BYTES_MAX),
        },
        "pools": {
            "queues": values.list_of(values.queue_name, "['images', '*']", at_least=1),
            "workers": values.whole(1, WORKERS_MAX),
            "imports": values.list_of(values.module_name, "['myapp.tasks']"),
            "pythonpath": values.list_of(values.path_under(root), "['src']"),
            "env": values.environment,
            "threads_per_worker": values.whole(1, 1024),
            "start_method": values.one_of("fork", "spawn"),
            "max_jobs_per_worker": values.whole(0),
            "memory_recycle": values.size(),
            "memory_budget": values.size(),
            "restart_intensity": values.whole(1),
            "restart_period": values.duration(1),
            "allow_pickle": values.flag,
            "paused": values.flag,
            "nice": values.whole(-20, 19),
        },
        "queues": {
            "max_global_concurrency": values.whole(1),
            "rate": values.rate,
            "lock_duration": values.duration(LIVENESS_MIN_MS),
            "stalled_interval": values.duration(LIVENESS_MIN_MS),
            "max_stalled_count": values.whole(0),
            "remove_on_complete": values.keep,
            "remove_on_fail": values.keep,
            "webhook": values.web_url,
            "max_size": values.whole(1),
            "group_concurrency": values.whole(1),
            "group_rate": values.rate,
        },
        "schedules": dict.fromkeys(_SCHEDULE_KEYS, values.anything),
        "curve": {
            "public_key_file": values.path_under(root),
            "secret_key_file": values.path_under(root),
            "allow": values.list_of(values.text, "['a public key']"),
        },
        "http": {
            "listen": values.http_listen,
            "token": values.text,
            "read_only": values.flag,
        },
        "retention": {
            "stale_after": values.duration(),
            "delete_after": values.duration(),
            "on_stale": values.text,
            "on_delete": values.text,
        },
    }


def _read_table(table: Table, keys: Mapping[str, Setting], readers: Mapping[str, Reader]) -> dict[str, Any]:
    return {key: _read(setting, readers[key], dotted(table, key)) for key, setting in keys.items()}


def _read(setting: Setting, reader: Reader, field: str) -> Any:
    refusals = []
    for reading in setting.readings:
        try:
            return reader(reading, field)
        except InvalidOption as refusal:
            refusals.append(refusal)
    raise InvalidConfig(f"{setting.source}: {refusals[0]}")


# -- the whole --------------------------------------------------------------------------------------


def _build(root: Path, read: Mapping[Table, dict[str, Any]], settings: Settings, source: str) -> Config:
    named: dict[str, dict[str, dict[str, Any]]] = {section: {} for section in sources.NAMED_SECTIONS}
    for table, keys in read.items():
        if len(table) == 2:
            named[table[0]][table[1]] = keys
    pools = named["pools"] or {"default": {}}
    data_dir_source = _origin(settings, ("supervisor",), "data_dir", source)
    curve, http = read.get(("curve",)), read.get(("http",))
    return Config(
        root=root,
        supervisor=_supervisor(root, read.get(("supervisor",), {}), data_dir_source),
        pools={name: _struct(PoolConfig, {"name": name, **keys}) for name, keys in pools.items()},
        queues={name: _struct(QueueConfig, keys) for name, keys in named["queues"].items()},
        schedules=named["schedules"],
        curve=None if curve is None else _curve(curve, source),
        http=None if http is None else _struct(HttpConfig, http),
        retention=_struct(RetentionConfig, read.get(("retention",), {})),
    )


def _struct(kind: type[T], keys: Mapping[str, Any]) -> T:
    fields = {field.removesuffix("_ms"): field for field in kind.__struct_fields__}
    return kind(**{fields[key]: value for key, value in keys.items()})


def _supervisor(root: Path, keys: dict[str, Any], data_dir_source: str) -> SupervisorConfig:
    data_dir = keys.get("data_dir", root / "data")
    try:
        if "listen" not in keys:
            address = values.ipc_address(data_dir / "conveyor.sock", "supervisor.data_dir", str(data_dir))
            keys = {**keys, "listen": (address,)}
        values.check_socket(data_dir / WORKERS_SOCKET, "supervisor.data_dir", str(data_dir))
        for address in keys.get("listen", ()):
            if address.startswith("ipc://") and (data_dir / "run") in Path(address.removeprefix("ipc://")).parents:
                raise InvalidOption(
                    "supervisor.listen", address, f"a path outside {data_dir / 'run'}, which is for workers"
                )
    except InvalidOption as refusal:
        raise InvalidConfig(f"{data_dir_source}: {refusal}") from None
    return _struct(SupervisorConfig, {**keys, "data_dir": data_dir})


def _curve(keys: dict[str, Any], source: str) -> CurveConfig:
    for key in ("public_key_file", "secret_key_file"):
        if key not in keys:
            raise InvalidConfig(f"{source}: curve.{key} is missing: [curve] needs the path of that file")
    return _struct(CurveConfig, keys)


def _check_names(settings: Settings, source: str) -> None:
    readers = {"pools": values.pool_name, "queues": values.queue_name}
    for table, keys in settings.items():
        if table[0] in readers:
            origin = next((setting.source for setting in keys.values()), source)
            _read(Setting(origin, (table[1],)), readers[table[0]], f"the name of [{dotted(table)}]")
            if table == ("queues", "*"):
                raise InvalidConfig(
                    f"{origin}: [queues.\"*\"] is not allowed: only a pool's list of queues knows '*'; "
                    "write a table for each queue"
                )


def _check_exposure(config: Config, settings: Settings, source: str) -> None:
    """Whatever other machines can reach needs a key, a token, or an explicit word."""
    if config.curve is None and not config.supervisor.insecure:
        for address in config.supervisor.listen:
            if values.is_exposed(address):
                origin = _origin(settings, ("supervisor",), "listen", source)
                raise InvalidConfig(
                    f"{origin}: supervisor.listen has {address!r}, which anyone on the network could use: "
                    "listen on ipc:// or tcp://127.0.0.1, give [curve] keys, or set "
                    "supervisor.insecure = true if the network is trusted"
                )
    http = config.http
    if http is not None and http.token is None and values.is_exposed(f"tcp://{http.listen}"):
        origin = _origin(settings, ("http",), "listen", source)
        raise InvalidConfig(
            f"{origin}: http.listen = {http.listen!r} could be used by anyone on the network: "
            "set http.token, or listen on 127.0.0.1"
        )


def _origin(settings: Settings, table: Table, key: str, source: str) -> str:
    setting = settings.get(table, {}).get(key)
    return source if setting is None else setting.source
