"""A run and an experiment with hostile text in every free text field."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from clawblox.experiment.reading.record import read_experiment
from clawblox.web.site import Site, identify
from tests.golden.test_golden_experiments import V1_SCORED
from tests.golden.test_golden_run_directory import V1
from tests.web.drawing import draw

TAGS = "<script>ran=1</script>\"'><img src=//evil.example/x onerror=ran=1><svg/onload=ran=1>"
SIGNS = "\x1b[31m\x1b]8;;http://evil.example/\x07&lt;\u202ebidi\u2066\u200b"
TEXTS = (f"{TAGS}{SIGNS}\ud800", f"{TAGS}{SIGNS}", TAGS)
"""Hostile texts, the worst first."""
NAME = "<img src=x onerror=ran=1>\"'\x1b[31m\u202e"
"""A hostile directory name."""
SECRET = "root:x:0:0"
"""Content of /etc/passwd."""
_STRUCTURE = frozenset(("type", "subtype", "role", "kind", "schema_version"))
_PLACES = frozenset(("name", "log_file", "instance_dir", "path", "dir"))
"""Members with paths of other files."""


def write_hostile(root: Path) -> tuple[Path, Path]:
    """Write a hostile run and a hostile experiment; return their directories.

    Another run, ``places``, has records and manifests with impossible paths.
    """
    places = Path(shutil.copytree(V1, root / "places"))
    for path in (*places.rglob("manifest.json"), *places.rglob("records.jsonl")):
        _poison(path, lambda: bool(Site(places).runs()), are_places=True)
    run = _write_run(root / NAME)
    _poison_files(run, lambda: _is_listed(run))
    records = run / ".clawblox" / "instances" / "records.jsonl"
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    for line in lines:
        if line["name"] == "w001":
            line["log_file"] = "/etc/passwd"
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    _add_agents(run)
    experiment = Path(shutil.copytree(V1_SCORED, root / f"exp {NAME}"))
    plan = experiment / "plan.toml"
    text = plan.read_text()
    for line in text.splitlines():
        key, _, value = line.partition(" = ")
        if value.startswith('"'):
            changed = text.replace(line, f"{key} = {json.dumps(TAGS)}")
            plan.write_text(changed)
            text = changed if _is_shown(experiment) else text
    plan.write_text(text)
    _poison(experiment / "journal.jsonl", lambda: _is_shown(experiment))
    return run, experiment


def _write_run(run: Path) -> Path:
    shutil.copytree(V1, run)
    log = run / "worlds" / "w000" / "logs" / "w000.log"
    with log.open("ab") as file:
        file.write(TEXTS[1].encode() + b"\xff\xfe\0\n" + b"<b>" * 2_700_000 + b"\n")
        file.write("".join(f"line {TAGS}\n" for _ in range(1000)).encode())
    (run / "worlds" / "w001" / "logs" / "w001.log").unlink()
    (run / "worlds" / "w001" / "logs" / "w001.log").symlink_to("/etc/passwd")
    return run


def _add_agents(run: Path) -> None:
    """Add agents whose files are links and pipes, and one with a bad name."""
    agents = run / "agents"
    for name in (NAME, "pipes", "links"):
        shutil.copytree(agents / "Eko", agents / name)
    for file in ("logs/agent.log", "events.jsonl", "usage.json"):
        (agents / "pipes" / file).unlink()
        os.mkfifo(agents / "pipes" / file)
        (agents / "links" / file).unlink()
        (agents / "links" / file).symlink_to("/etc/passwd")
    (agents / "outside").symlink_to("/etc")


def _is_listed(run: Path) -> bool:
    (found,) = Site(run).runs()
    return len(found.run.instances) == 2 and len(found.agents) == 1


def _is_shown(experiment: Path) -> bool:
    try:
        read_experiment(experiment)
        draw(experiment.parent, f"experiment/{identify(experiment.name)}")
    except Exception:  # this field must stay valid
        return False
    return True


def _poison_files(run: Path, is_whole: Callable[[], bool]) -> None:
    for path in sorted((*run.rglob("*.json"), *run.rglob("*.jsonl"), *run.rglob("agent.log"))):
        if path.parent.name != "checkpoints":
            _poison(path, is_whole)


def _poison(path: Path, is_whole: Callable[[], bool], *, are_places: bool = False) -> None:
    """Replace each text in a file and add a key to each object, unless that makes it unreadable.

    Args:
        path: The file.
        is_whole: Returns whether everything is readable.
        are_places: Whether to replace only paths of other files, or all other texts.
    """
    content = path.read_text()
    is_lines = path.suffix != ".json"
    documents = [*map(json.loads, content.splitlines())] if is_lines else [json.loads(content)]

    def write() -> None:
        texts = [json.dumps(one, indent=None if is_lines else 2) for one in documents]
        path.write_text("\n".join(texts) + "\n")

    seen = set()
    for kind, key, owner in [*_fields(documents, "")]:
        if (key in _PLACES) is not are_places:
            continue
        if kind in seen and path.name == "journal.jsonl":
            continue  # checks that everything is readable after each change
        seen.add(kind)
        had = isinstance(owner, list) or key in owner
        before = owner[key] if had else None
        for worst in TEXTS:
            owner[key] = worst
            write()
            if is_whole():
                break
            if had:
                owner[key] = before
            else:
                del owner[key]
        write()


def _fields(value: Any, kind: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the place of each text, in its object or list, and of a further key of each object."""
    if isinstance(value, dict):
        for key, inner in [*value.items()]:
            if key in _STRUCTURE:
                continue
            if isinstance(inner, str):
                yield f"{kind}.{value.get('type')}.{key}", key, value
            yield from _fields(inner, f"{kind}.{key}")
        yield f"{kind}.new", TAGS, value
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            if isinstance(inner, str):
                yield f"{kind}[]", number, value
            yield from _fields(inner, f"{kind}[]")
