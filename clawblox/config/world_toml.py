"""``world.toml`` -> :class:`WorldConfig`: the facts of a world before it runs.

Reads the file and builds errors with file, line, key and value; ``schema`` checks the values.
Unknown keys are kept and never cause an error. No program is started and no other file is read: a
missing script, document or command is reported when it is used.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

from clawblox import protocol
from clawblox.config.arguments import check_size
from clawblox.config.options import build_options
from clawblox.config.schema import SCHEMA, Fault
from clawblox.config.toml_text import find_line, parse_toml, read_toml_text
from clawblox.config.toml_words import (
    advise,
    advise_brackets,
    advise_placing,
    dotted_key,
    format_toml,
    has_value,
)
from clawblox.errors import ConfigError
from clawblox.printable import printable_name
from clawblox.telemetry.own_log import OwnLog
from clawblox.world_keys import CONFIG_NAME

_log = OwnLog(__name__)


_MAX_FAULTS: Final = 20

_ENGINE_PROBE_S: Final = 10.0
"""Timeout of a liveness probe of an engine world, in seconds; a tick may take a while."""

ENGINE_MAP_ROUTE: Final = "GET /map"
"""Route for the static parts of every engine world, in the form of ``[api] allow``."""

_API_DEFAULTS: Final[Mapping[str, str]] = {
    "doc_url_path": protocol.API_ROUTE,
    "join": protocol.JOIN_ROUTE,
    "observe": protocol.OBSERVE_ROUTE,
    "input": protocol.INPUT_ROUTE,
    "session_header": protocol.SESSION_HEADER,
}


class Sidecar(msgspec.Struct, frozen=True):
    """A program that runs alongside the world: ``[[run.sidecar]]``.

    Attributes:
        name: Unique in the world, and valid as the name of a tmux window.
        command: Its argv.
    """

    name: str
    command: tuple[str, ...]


@attrs.frozen
class ReadyRule:
    """The condition for an instance to be ready: ``[run.ready]``.

    Attributes:
        path: Route that answers 200 once the world is ready; unused if ``log`` is set.
        log: Regular expression; the world is ready when a line of its log matches.
        interval: Seconds between two probes; None for the default, which adapts.
    """

    path: str = protocol.API_ROUTE
    log: str | None = None
    interval: float | None = None


@attrs.frozen
class LivenessRule:
    """The condition for a ready instance to count as hung: ``[run.liveness]``.

    Terms and defaults are those of the kubelet's liveness probe. An answer of 200 within
    ``timeout`` is a success, everything else a failure; one success resets the count of failures.

    Attributes:
        path: Route to probe.
        period: Seconds between two probes, and from readiness to the first.
        timeout: Timeout of one probe, in seconds.
        failure_threshold: Number of consecutive failures after which the instance counts as hung.
    """

    path: str = protocol.API_ROUTE
    period: float = 10.0
    timeout: float = 1.0
    failure_threshold: int = 3


@attrs.frozen
class WorldConfig:
    """The content of the ``world.toml`` of one world.

    Attributes:
        dir: The world directory, absolute, with symbolic links resolved.
        config: The parsed file as plain dicts, lists, strings, numbers, booleans and dates.
        warnings: The unknown keys that look misspelled, for example
            ``run.comand: did you mean command?``.
    """

    dir: Path
    config: dict[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The world's name."""
        return str(self.config["name"])

    @property
    def description(self) -> str | None:
        """The author's description of the world; None if the file has none."""
        return self.config.get("description")

    @property
    def scripts(self) -> dict[str, Any]:
        """The table ``[scripts]``."""
        return self._table("scripts")

    @property
    def renderer(self) -> dict[str, Any]:
        """The table ``[renderer]``."""
        return self._table("renderer")

    @property
    def runtime(self) -> dict[str, Any]:
        """The table ``[runtime]``."""
        return self._table("runtime")

    @property
    def run(self) -> dict[str, Any]:
        """The table ``[run]``, including ``command``."""
        return self._table("run")

    @property
    def run_command(self) -> list[str] | None:
        """The command that starts the world; None if the Clawblox runner starts it."""
        return self.run.get("command")

    @property
    def is_external(self) -> bool:
        """True if the world declares that it does not run on the built-in engine."""
        return bool(self.runtime.get("mode") == "external")

    @property
    def is_engine_world(self) -> bool:
        """True if the built-in engine runs the world."""
        return self.run_command is None and not self.is_external

    @property
    def start_command(self) -> list[str]:
        """The template command: ``[run].command``, or else the default Clawblox runner."""
        return list(self.run_command or ("clawblox", "run", str(self.dir)))

    @property
    def replay_command(self) -> list[str] | None:
        """The command that shows a recording; None if the world has none."""
        return self._table("replay").get("command")

    @property
    def start_env(self) -> dict[str, str]:
        """The template environment of a start, for example ``WORLD_PORT={port}``."""
        return {
            protocol.HOST_ENV: "{host}",
            protocol.PORT_ENV: "{port}",
            protocol.BASE_PATH_ENV: "{base_path}",
            protocol.RECORD_ENV: "{record}",
            protocol.RECORD_DIR_ENV: "{record_dir}",
            protocol.RESUME_ENV: "{resume_path}",
            protocol.OPERATOR_TOKEN_ENV: "{operator_token}",
            protocol.SPECTATOR_TOKEN_ENV: "{spectator_token}",
            protocol.MANIFEST_ENV: "{manifest_path}",
            protocol.BIN_ENV: "{clawblox_bin}",
        }

    @property
    def api_doc_path(self) -> Path:
        """Path of the agent API document: ``[api].doc_path``, ``scripts.skill``, API.md."""
        written = self._table("api").get("doc_path") or self.scripts.get("skill")
        return self.dir / (written or "API.md")

    @property
    def api(self) -> dict[str, Any]:
        """The world's API metadata that is known before a launch."""
        return {**_API_DEFAULTS, **self._table("api"), "doc_path": str(self.api_doc_path)}

    @property
    def agent_routes(self) -> tuple[str, ...]:
        """Additional routes for agents: those in ``[api].allow``, and the map."""
        listed = tuple(self._table("api").get("allow", ()))
        return (ENGINE_MAP_ROUTE, *listed) if self.is_engine_world else listed

    @property
    def sidecars(self) -> tuple[Sidecar, ...]:
        """The programs that run alongside the world, in the order of the file."""
        return tuple(
            Sidecar(entry["name"], tuple(entry["command"])) for entry in self.run.get("sidecar", ())
        )

    @property
    def ready(self) -> ReadyRule:
        """The condition for an instance to be ready."""
        usual = {"path": protocol.HEALTH_ROUTE} if self.is_engine_world else {}
        return build_options(ReadyRule, {**usual, **self.run.get("ready", {})})

    @property
    def liveness(self) -> LivenessRule | None:
        """The condition for an instance to count as hung; None if it is not probed."""
        table = self.run.get("liveness", {})
        if self.is_engine_world:
            usual = {"path": protocol.HEALTH_ROUTE, "timeout": _ENGINE_PROBE_S}
            return build_options(LivenessRule, {**usual, **table})
        return build_options(LivenessRule, table) if self.asks_for_probes else None

    @property
    def asks_for_probes(self) -> bool:
        """True if ``[run.liveness]`` has keys other than ``listener``."""
        table = self.run.get("liveness")
        return table is not None and table.keys() != {"listener"}

    @property
    def watches_listener(self) -> bool:
        """True if an instance must keep listening after it became ready."""
        return bool(self.run.get("liveness", {}).get("listener", True))

    @property
    def memory_limit_bytes(self) -> int | None:
        """Memory that the processes of an instance may use, in bytes; None for no limit."""
        limit = self._table("limits").get("memory")
        return None if limit is None else check_size(limit, "limits.memory")

    @property
    def inherits_listener(self) -> bool:
        """True if the world serves on a socket that it inherits."""
        usual = "inherit" if self.is_engine_world else "bind"
        return bool(self.run.get("listen", usual) == "inherit")

    @property
    def takes_reseed(self) -> bool:
        """True if the world can be given a new random seed after restoring."""
        return bool(self.run.get("reseed", self.is_engine_world))

    @property
    def records_itself(self) -> bool:
        """True if the world writes its recordings; otherwise, clawblox records its agents."""
        return bool(self.run.get("recorder", "world") == "world")

    @property
    def shares_source(self) -> bool:
        """True if agents of an experiment get a copy of the world directory."""
        return bool(self._table("agent").get("source_workspace", True))

    @property
    def server_source(self) -> Path | None:
        """The source file of the world's server in that copy; None if the agents get no copy."""
        source = self._table("agent").get("server_source")
        return None if source is None else self.dir / source

    def _table(self, key: str) -> dict[str, Any]:
        table: dict[str, Any] = self.config.get(key, {})
        return table


def read_world_config(world_dir: Path) -> WorldConfig:
    """Read and check the ``world.toml`` of a world directory.

    Unknown keys that look misspelled are logged as a warning, once per process.

    Args:
        world_dir: The directory; a relative path is resolved against the current directory.

    Raises:
        ConfigError: The directory or the file is missing or unreadable, the file is not
            UTF-8 or not TOML, or a known key is missing or has an invalid value.
    """
    root = Path(os.path.realpath(world_dir))
    path = root / CONFIG_NAME
    try:
        text = read_toml_text(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _absence_error(root) from error
    config = parse_toml(text, path)
    faults = {fault.keys: fault for fault in itertools.islice(SCHEMA(config), _MAX_FAULTS)}
    if faults:
        first, *others = (_config_error(fault, config, text, path) for fault in faults.values())
        raise first.but(others=tuple(others))
    return WorldConfig(root, config, tuple(_warnings(config, text, path)))


def _warnings(config: dict[str, Any], text: str, path: Path) -> Iterator[str]:
    likely = {m.keys: f"did you mean {m.likely}?" for m in SCHEMA.misspellings(config)}
    likely |= {keys: advise_placing(keys) for keys in SCHEMA.misplaced(config)}
    for keys, advice in likely.items():
        key = printable_name(dotted_key(keys))  # it is printed, and may contain anything
        warning = f"{key}: {advice}"
        line = find_line(text, keys)
        _log_once(warning, f"{path}:{line}" if line else str(path))
        yield warning


@functools.lru_cache(maxsize=256)
def _log_once(warning: str, place: str) -> None:
    _log.warning(warning, file=place)


def _absence_error(root: Path) -> ConfigError:
    hint = f"give the directory that holds the {CONFIG_NAME}"
    if root.is_dir():
        return ConfigError(f"the directory has no {CONFIG_NAME}", path=root, hint=hint)
    if root.exists():
        return ConfigError("the world is a file, not a directory", path=root, hint=hint)
    return ConfigError("the world directory does not exist", path=root, hint=hint)


def _config_error(fault: Fault, config: dict[str, Any], text: str, path: Path) -> ConfigError:
    key = dotted_key(fault.keys)
    # A missing key has no line, so the line of its table is used.
    where = fault.keys if has_value(config, fault.keys) else fault.keys[:-1]
    line = find_line(text, where) if where else None
    if where == fault.keys:
        hint = advise_brackets(key, fault.value) if "table" in fault.complaint else None
        if "list of strings" in fault.complaint and isinstance(fault.value, str):
            hint = f"write {format_toml(fault.value.split())}" if fault.value.strip() else None
    else:
        hint = _misspelled_hint(fault, config) or advise(fault.keys, config, ())
    error = ConfigError(fault.complaint, path=path, key=key, value=fault.value, line=line)
    return error.but(hint=hint, show=format_toml)


def _misspelled_hint(fault: Fault, config: dict[str, Any]) -> str | None:
    """Return a hint if another key may be a misspelling of the missing one."""
    *parents, missing = fault.keys
    for misspelling in SCHEMA.misspellings(config):
        if [*misspelling.keys[:-1], misspelling.likely] == [*parents, missing]:
            return f"there is {misspelling.keys[-1]!r}; did you mean {missing}?"
    return None
