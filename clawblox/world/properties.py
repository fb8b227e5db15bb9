"""The metadata of a world, available without a call: the properties of AsyncWorld and World."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawblox.config.world_toml import WorldConfig
from clawblox.protocol import API_ROUTE
from clawblox.results import StartedWorld


class WorldMetadata(ABC):
    """The static metadata of a world, and the facts of its latest instance."""

    @property
    @abstractmethod
    def _config(self) -> WorldConfig: ...

    @property
    @abstractmethod
    def _latest(self) -> StartedWorld | None: ...

    # -- before start -----------------------------------------------------------------------

    @property
    def dir(self) -> Path:
        """The world directory, absolute."""
        return self._config.dir

    @property
    def config(self) -> dict[str, Any]:
        """The parsed ``world.toml`` as a plain dict, unknown keys included."""
        return self._config.config

    @property
    def config_warnings(self) -> tuple[str, ...]:
        """Unknown keys that look misspelled, such as ``run.comand: did you mean command?``."""
        return self._config.warnings

    @property
    def name(self) -> str:
        """``config["name"]``."""
        return self._config.name

    @property
    def description(self) -> str | None:
        """``config.get("description")``."""
        return self._config.description

    @property
    def scripts(self) -> dict[str, Any]:
        """``config.get("scripts", {})``."""
        return self._config.scripts

    @property
    def renderer(self) -> dict[str, Any]:
        """``config.get("renderer", {})``."""
        return self._config.renderer

    @property
    def runtime(self) -> dict[str, Any]:
        """``config.get("runtime", {})``."""
        return self._config.runtime

    @property
    def run(self) -> dict[str, Any]:
        """``config.get("run", {})``."""
        return self._config.run

    @property
    def run_command(self) -> list[str] | None:
        """``config.get("run", {}).get("command")``."""
        return self._config.run_command

    @property
    def api(self) -> dict[str, Any]:
        """Metadata of the agent API before the launch; ``[api]`` overrides the defaults."""
        return self._config.api

    @property
    def api_doc_path(self) -> Path:
        """The API document: ``scripts.skill``, or ``API.md``."""
        return self._config.api_doc_path

    @property
    def start_command(self) -> list[str]:
        """The template command: ``[run].command``, or the default Clawblox runner."""
        return self._config.start_command

    @property
    def start_env(self) -> dict[str, str]:
        """The template environment of a delegated start."""
        return self._config.start_env

    # -- after start ------------------------------------------------------------------------

    @property
    def url(self) -> str | None:
        """Address of the instance that became ready last; None before the first start."""
        return None if self._latest is None else self._latest.url

    @property
    def port(self) -> int | None:
        """Port of the instance that became ready last; None before the first start."""
        return None if self._latest is None else self._latest.port

    @property
    def command_file(self) -> Path | None:
        """Script that reruns the latest launch; None before the first start."""
        return None if self._latest is None else self._latest.command_file

    @property
    def log_file(self) -> Path | None:
        """Log of the instance that became ready last; None before the first start."""
        return None if self._latest is None else self._latest.log_file

    def api_path(self, *, path: str = API_ROUTE, access: Mapping[str, Any]) -> str:
        """Return the address of a document or route, for use in a prompt.

        Args:
            path: Route below the world's address; the leading slash is optional.
            access: Result of :meth:`connect`.
        """
        slash = "" if path.startswith("/") else "/"
        return f"{access['base_url']}{slash}{path}"
