"""World directories and running worlds of the orchard of ``worlds/provable.py``."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until
from tests.support.worlds import RunningWorld, running_world
from tests.worlds.defects import CLOCKS, DEFECTS, FILE_DEFECTS

PROVABLE = Path(__file__).parents[1] / "worlds" / "provable.py"

ACTIONS = (
    {"type": "push", "data": {"force": 2.5}},
    {"type": "pick"},
    {"type": "push", "data": {"force": -1.25}},
    {"type": "drop"},
)
"""Inputs that every orchard accepts."""

_INTRODUCTION = """# Orchard

Join with `POST /join?name=`, and send the session that you get as `X-Session` with every request.
Look with `GET /observe`, talk with `POST /chat` and listen with `GET /chat/messages`.
"""


def provable_command(clock: str, defect: str | None = None) -> list[str]:
    """Return the command that runs an orchard."""
    assert clock in CLOCKS, f"no such clock: {clock}"
    assert defect is None or defect in DEFECTS, f"no such defect: {defect}"
    is_in_program = defect is not None and defect not in FILE_DEFECTS
    flags = ["--defect", defect] if is_in_program and defect else []
    return [sys.executable, "-I", "-S", str(PROVABLE), "--clock", clock, *flags]


def make_provable_world(
    parent: Path,
    *,
    clock: str,
    defect: str | None = None,
    declares_actions: bool = False,
    name: str = "orchard",
) -> Path:
    """Write the directory of an orchard below ``parent`` and return it.

    Args:
        parent: Parent of the directory.
        clock: ``lockstep`` or ``realtime``.
        defect: The only defect, one of :data:`DEFECTS`; None for a world that conforms.
        declares_actions: Whether ``[conformance] actions`` lists the inputs instead of ``API.md``.
        name: Name of the directory.
    """
    directory = parent / name
    directory.mkdir()
    declares_actions = declares_actions and defect != "api-without-actions"
    describes = "descripton" if defect == "misspelled-key" else "description"
    toml = [
        'name = "Orchard"',
        f'{describes} = "Agents carry apples in the wind."',
        'max_players = "eight"' if defect == "broken-world-toml" else "max_players = 8",
        "[run]",
        f"command = {json.dumps(provable_command(clock, defect))}",
    ]
    if defect == "script-errors":
        toml += ["[run.liveness]", 'path = "/health"']
    if declares_actions:
        shown = (", ".join(f"{key} = {_as_toml(act[key])}" for key in act) for act in ACTIONS)
        toml += ["[conformance]", f"actions = [{', '.join(f'{{ {act} }}' for act in shown)}]"]
    (directory / "world.toml").write_text("\n".join([*toml, ""]))
    (directory / "API.md").write_text(_api_doc(defect, has_actions=not declares_actions))
    return directory


def _as_toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_as_toml(value[key])}' for key in value)} }}"
    return json.dumps(value)


def _api_doc(defect: str | None, *, has_actions: bool) -> str:
    if defect == "api-empty":
        return ""
    blocks = [f"\n```json\n{json.dumps(action)}\n```\n" for action in ACTIONS]
    text = _INTRODUCTION
    if has_actions and defect != "api-without-actions":
        text += "".join(["\nAct with `POST /input`:\n", *blocks])
    if defect == "api-mentions-snapshot":
        text += "\n`GET /snapshot` saves the orchard.\n"
    return text


@contextmanager
def running_orchard(
    parent: Path,
    *flags: str,
    clock: str = "lockstep",
    defect: str | None = None,
    resume: bytes | None = None,
    env: Mapping[str, str] | None = None,
    listens: bool = True,
) -> Iterator[RunningWorld]:
    """Run an orchard in its own directory, without an orchestrator.

    Args:
        parent: Parent of the directory.
        *flags: Further flags of the program.
        clock: ``lockstep`` or ``realtime``.
        defect: The only defect; None for a world that conforms.
        resume: Snapshot to restore; None starts fresh.
        env: Further variables.
        listens: Whether to wait until the port is open or the world has ended.
    """
    name = f"orchard-{uuid.uuid4().hex[:8]}"
    directory = make_provable_world(parent, clock=clock, defect=defect, name=name)
    variables = dict(env or {})
    if resume is not None:
        save = parent / f"{name}.snapshot"
        save.write_bytes(resume)
        variables["WORLD_RESUME_PATH"] = str(save)
    with running_world(
        parent,
        *flags,
        env=variables,
        listens=False,
        command=provable_command(clock, defect),
        directory=directory,
    ) as world:
        if listens:
            wait_until(lambda: is_serving(world) or world.process.poll() is not None)
        yield world


def is_serving(world: RunningWorld) -> bool:
    """Return whether an orchard has opened its port, without listing all listeners."""
    return "serving http://" in world.log
