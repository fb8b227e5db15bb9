"""Digests, copies and compares the files that an experiment reads. All functions block.

The source of the world stays in place. Prompts and templates are copied into the directory of the
experiment, so it can be resumed without the author's files. Digests do not depend on paths, because
directories may be moved.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from clawblox.config.arguments import mismatch
from clawblox.errors import ConfigError
from clawblox.experiment.plan.changes import PROMPTS, TEMPLATES, WORLD
from clawblox.experiment.plan.naming import copy_name
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.plan.plan_file import map_paths
from clawblox.experiment.plan.values import build, to_plain
from clawblox.results import PlanChange
from clawblox.system.copy_tree import copy_tree
from clawblox.system.files import (
    make_private_dir,
    partial_tree,
    publish_bytes,
    publish_tree,
    sweep_partials,
)
from clawblox.system.regular_files import read_regular
from clawblox.system.tree_digests import digest_tree
from clawblox.world.sources import (
    MAX_SOURCE_BYTES,
    MAX_SOURCE_FILE_BYTES,
    digest_sources,
    is_cache,
    is_source,
)

_MAX_PROMPT_BYTES: Final = 16 << 20
_SHOWN_CHANGES: Final = 20
_TOO_LARGE: Final = "make it smaller, or keep it outside of the directory"
_SHOWN_DIGEST_CHARS: Final = 12


@attrs.frozen(kw_only=True)
class InputDigests:
    """Digests of the files that an experiment reads.

    Attributes:
        world: Digests of the files of each world, by the name of its directory and the path.
        prompts: Digests of system prompts, by chain and agent: ``fable-r1/Eko``.
        templates: Digests of templates, by chain and agent.
    """

    world: Mapping[str, str]
    prompts: Mapping[str, str]
    templates: Mapping[str, str]

    def compare(self, new: InputDigests) -> tuple[PlanChange, ...]:
        """Return an amendment for each kind of input that has changed, with the changed names.

        Chains and worlds that only one of the two contains are left out.

        Args:
            new: The digests now.
        """
        kinds = {
            WORLD: _differences(self.world, new.world, lambda name: name.partition("/")[0]),
            PROMPTS: _differences(self.prompts, new.prompts, str),
            TEMPLATES: _differences(self.templates, new.templates, str),
        }
        return tuple(
            PlanChange(field, *changes, "amendment") for field, changes in kinds.items() if changes
        )


def digest_world(
    directory: Path,
    *,
    experiment_dir: Path | None = None,
    check: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Return the digests of the source files of a world, by relative path.

    Results of runs, caches and git history are omitted. Links are not followed.

    Args:
        directory: The directory of the world.
        experiment_dir: The directory of the experiment, also omitted; None if it is elsewhere.
        check: Called often; ends the call by raising an error.

    Raises:
        ConfigError: The directory does not exist, or a file in it cannot be read or is too large.
    """
    root = Path(os.path.realpath(directory))
    results = None if experiment_dir is None else Path(os.path.realpath(experiment_dir))

    def is_no_source(path: str) -> bool:
        return not is_source(path) or root / path == results

    with _reading("world.dir", directory):
        return digest_sources(root, skip=is_no_source, check=check)


def digest_inputs(
    plan: Plan,
    *,
    experiment_dir: Path | None = None,
    check: Callable[[], None] = lambda: None,
) -> InputDigests:
    """Return the digests of all files that a plan names; a world that is an address has none.

    Args:
        plan: The plan.
        experiment_dir: The directory of the experiment, as for :func:`digest_world`.
        check: Called often; ends the call by raising an error.

    Raises:
        ConfigError: A file or directory does not exist, cannot be read, or is too large.
    """
    digests = _InputDigests(experiment_dir, check)
    for chain in plan.chains():
        digests.add_world(chain.plan)
        for index, agent in enumerate(chain.plan.agents):
            name, key = f"{chain.name}/{agent.name}", f"agents.{index}"
            if agent.system_prompt is not None:
                path = agent.system_prompt
                digests.add(digests.prompts, name, f"{key}.system_prompt", path, _digest_prompt)
            if agent.template is not None:
                path = agent.template
                digests.add(digests.templates, name, f"{key}.template", path, _digest_template)
    return InputDigests(world=digests.world, prompts=digests.prompts, templates=digests.templates)


def copy_inputs(plan: Plan, directory: Path, *, check: Callable[[], None] = lambda: None) -> Plan:
    """Copy the prompts and templates of a plan, and return the plan with the copies.

    Each copy is complete or absent, and named after its digest. Links in templates are copied as
    links. Existing copies are reused.

    Args:
        plan: The plan.
        directory: Directory for the copies, created if it is missing.
        check: Called often; ends the call by raising an error.

    Raises:
        ConfigError: A file or directory does not exist, cannot be read, or is too large.
        OSError: A copy cannot be written.
    """
    make_private_dir(directory)
    sweep_partials(directory)
    copiers = {"system_prompt": _copy_prompt, "template": _copy_template}
    copies: dict[tuple[str, str], str] = {}

    def change(field: str, path: str) -> str:
        if field not in copiers:
            return path
        if (field, path) not in copies:
            copies[field, path] = str(copiers[field](Path(path), directory, check))
        return copies[field, path]

    return build(Plan, map_paths(to_plain(plan), change), "")


# -- digests --------------------------------------------------------------------------------------


@attrs.define(eq=False)
class _InputDigests:
    """Digests of the inputs of all chains; each file is read once."""

    _experiment_dir: Path | None
    _check: Callable[[], None]
    world: dict[str, str] = attrs.field(factory=dict, init=False)
    prompts: dict[str, str] = attrs.field(factory=dict, init=False)
    templates: dict[str, str] = attrs.field(factory=dict, init=False)
    _read: dict[Path, str] = attrs.field(factory=dict, init=False)

    def add_world(self, plan: Plan) -> None:
        directory = plan.world.dir
        if isinstance(directory, str) or directory in self._read:
            return
        self._read[directory] = plan.world.dir_name
        digests = digest_world(directory, experiment_dir=self._experiment_dir, check=self._check)
        for path, digest in digests.items():
            self.world[f"{plan.world.dir_name}/{path}"] = digest

    def add(
        self,
        digests: dict[str, str],
        name: str,
        key: str,
        path: Path,
        digest: Callable[[Path, Callable[[], None]], str],
    ) -> None:
        if path not in self._read:
            with _reading(key, path):
                self._read[path] = digest(Path(os.path.realpath(path)), self._check)
        digests[name] = self._read[path]


def _digest_prompt(path: Path, _check: Callable[[], None]) -> str:
    return hashlib.sha256(read_regular(path, max_bytes=_MAX_PROMPT_BYTES)).hexdigest()


def _digest_template(path: Path, check: Callable[[], None]) -> str:
    return digest_tree(
        path,
        max_bytes=MAX_SOURCE_FILE_BYTES,
        max_total_bytes=MAX_SOURCE_BYTES,
        skip=is_cache,
        check=check,
    )


@contextmanager
def _reading(key: str, path: Path) -> Iterator[None]:
    """Add the field and its path to file errors."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        expected = "an existing file" if key.endswith("system_prompt") else "an existing directory"
        raise mismatch(key, expected, str(path)) from error
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        name = error.filename or path
        hint = _TOO_LARGE if error.errno == errno.EFBIG else None
        raise ConfigError(
            problem, key=key, value=str(path), path=Path(str(name)), hint=hint
        ) from error


# -- differences ----------------------------------------------------------------------------------


def _differences(
    old: Mapping[str, str], new: Mapping[str, str], find_owner: Callable[[str], str]
) -> tuple[dict[str, str], dict[str, str]] | None:
    """Return the old and new digests of names that differ; None if no digest differs.

    Args:
        old: Old digests by name.
        new: New digests by name.
        find_owner: Returns the owner of a name; names are compared if both sides have the owner.
    """
    owners = set(map(find_owner, old)) & set(map(find_owner, new))
    names = [
        name
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and find_owner(name) in owners
    ]
    shown = names[:_SHOWN_CHANGES]
    before, after = (
        {name: digests[name][:_SHOWN_DIGEST_CHARS] for name in shown if name in digests}
        for digests in (old, new)
    )
    return (before, after) if names else None


# -- copies ---------------------------------------------------------------------------------------


def _copy_prompt(path: Path, directory: Path, _check: Callable[[], None]) -> Path:
    with _reading("system_prompt", path):
        data = read_regular(os.path.realpath(path), max_bytes=_MAX_PROMPT_BYTES)
    copy = directory / copy_name(hashlib.sha256(data).hexdigest(), path.name)
    if not copy.exists():
        publish_bytes(copy, data)
    return copy


def _copy_template(path: Path, directory: Path, check: Callable[[], None]) -> Path:
    with partial_tree(directory, "template") as partial:
        with _reading("template", path):
            source = Path(os.path.realpath(path))
            _digest_template(source, check)  # refuses files that are too large to copy
            copy_tree(source, partial, is_kept=lambda name, _: not is_cache(str(name)), check=check)
            digest = _digest_template(partial, check)
        copy = directory / copy_name(digest, path.name)
        if not copy.exists():
            publish_tree(partial, copy)
    return copy
