"""Generated runs, agents, logs and recordings, written by the package's own writers.

They do not come from real runs, which would take weeks. Live runs belong to the writing process.
"""

from __future__ import annotations

import json
import math
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from clawblox.agents.events import EventFile
from clawblox.agents.layout import AGENTS_DIR, AgentDir
from clawblox.agents.status import AgentRecord, StatusWriter
from clawblox.agents.usage import Ledger
from clawblox.agents.values import AgentEvent, EventType, Usage
from clawblox.recording.blocks import Moment, Track
from clawblox.recording.writer import BlockCollector, create_next
from clawblox.results import ProcessExit
from clawblox.rundir.manifest import manifest_path
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.manifest_updates import (
    agent_update,
    checkpoint_update,
    recording_update,
    run_update,
)
from clawblox.rundir.paths import make_run_dir, records_dir
from clawblox.rundir.records import InstanceRecord, write_records
from clawblox.system.clock import format_utc, format_utc_ms
from clawblox.system.files import make_private_dir
from clawblox.system.process_tree import boot_id, read_start_time
from clawblox.telemetry.log_index import LogIndex

__all__ = ["add_turn", "make_agent", "make_log", "make_recording", "make_runs", "write_turns"]

_BEGIN: Final = datetime(2026, 11, 1, tzinfo=UTC)
_BEGIN_NS: Final = int(_BEGIN.timestamp() * 1e9)
_SAVES: Final = 3
_TICKS_S: Final = 20
_PARTS: Final = 20
_WORDS: Final = (
    "The marble rolls towards the gate; I steer it left, wait for the next observation, "
    "and compare the score with what I have noted before. "
)


def make_runs(root: Path, count: int, *, live: int, agents: int = 2) -> list[Path]:
    """Write run directories with a world, three saves and some agents each.

    Args:
        root: Parent directory of the run directories.
        count: Number of runs.
        live: Number of runs, the last ones, that are live in this process.
        agents: Number of agents per run.
    """
    runs = [root / f"batch-{number // 100:02}" / f"r{number:04}" for number in range(count)]
    for number, run in enumerate(runs):
        _make_run(run, number, agents, is_live=number >= count - live)
    return runs


def _make_run(run: Path, number: int, agents: int, *, is_live: bool) -> None:
    begun = _BEGIN + timedelta(minutes=number)
    make_run_dir(run)
    make_private_dir(records_dir(run))
    labels = {"condition": ("memory", "none")[number % 2], "seed": number}
    record = _make_record(run, format_utc(begun), labels)
    states = ["starting", "ready"] if is_live else ["starting", "ready", "exited"]
    for state in states:
        write_records(run, InstanceRecord(**{**record, **_end_of(state, begun)}))
    status = "running" if is_live else "complete"
    updates = [run_update(id=f"{run.name}-run", status=status, started_at=begun, labels=labels)]
    updates += [checkpoint_update(_save(run, index, begun)) for index in range(_SAVES)]
    names = [f"Agent{index}-{run.name}" for index in range(agents)]
    updates += [
        agent_update(dir=run / AGENTS_DIR / name, name=name, driver="claude") for name in names
    ]
    ManifestFile(manifest_path(run), lock_wait=1.0).apply(updates, durable=False)
    for name in names:
        make_agent(run / AGENTS_DIR / name, is_live=is_live)


def _make_record(run: Path, started_at: str, labels: dict[str, Any]) -> dict[str, Any]:
    options = {"record": True, "env": [], "restart": "never", "labels": labels, "reseed": 7}
    return {
        **dict.fromkeys(("base_path", "control"), ""),
        **dict.fromkeys(("index", "ended_at", "resume_path", "exit"), None),
        **dict.fromkeys(("log_start", "restarts"), 0),
        "name": "w000",
        "world": "marbles",
        "world_dir": str(run.parent / "worlds" / "marbles"),
        "instance_dir": str(run),
        "host": "127.0.0.1",
        "port": 20001,
        "url": "http://127.0.0.1:20001",
        "pid": os.getpid(),
        "start_time": read_start_time(os.getpid()),
        "boot_id": boot_id(),
        "cookie": uuid.uuid4().hex,
        "is_detached": False,
        "orchestrator_pid": os.getpid(),
        "command_file": str(run / "runtime" / "w000.sh"),
        "log_file": str(run / "logs" / "w000.log"),
        "started_at": started_at,
        "run_id": f"{run.name}-run",
        "options": options,
    }


def _end_of(state: str, begun: datetime) -> dict[str, Any]:
    if state != "exited":
        return {"state": state}
    ended_at = format_utc(begun + timedelta(minutes=10))
    return {"state": state, "ended_at": ended_at, "exit": ProcessExit(status=0)}


def _save(run: Path, index: int, begun: datetime) -> dict[str, Any]:
    path = run / "checkpoints" / f"w000-{index}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    return {
        "path": str(path),
        "instance": "w000",
        "format": "marbles-v1",
        "time": 100.0 * index,
        "size_bytes": 2,
        "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        "created_at": format_utc(begun + timedelta(minutes=index)),
        "run_id": f"{run.name}-run",
    }


def make_recording(run: Path, seconds: int) -> None:
    """Write the recording of a world in which an agent steers and observes twice per second.

    Args:
        run: The run directory of an ended world.
        seconds: Length of the recording, in seconds of simulation time.
    """
    directory = run / "recordings"
    directory.mkdir()
    collector, file = BlockCollector(), create_next(directory)

    def add(track: Track, tick: int, **fields: Any) -> None:
        time_s = tick / _TICKS_S
        moment = Moment(tick, time_s, format_utc_ms(_BEGIN_NS + int(time_s * 1e9)))
        encoded = json.dumps(fields, separators=(",", ":")).encode()
        if not tick and fields.get("event") == "start":
            collector.start(moment, encoded)
        elif collector.add(track, moment, encoded, time_s):
            file.write(collector.take(time_s))

    add(Track.INPUTS, 0, event="start", format="clawblox-recording-v2", clock="realtime")
    add(Track.INPUTS, 0, event="join", agent_id="a", name="Ada")
    for tick in range(seconds * _TICKS_S):
        parts = {f"part-{n}": [n + tick / 7 % 1, 2.5, tick / 11 % 1] for n in range(_PARTS)}
        if tick % (_TICKS_S // 2) == 0:
            data = {"direction": [tick % 3, 1]}
            add(Track.INPUTS, tick, event="input", agent_id="a", action="Steer", data=data)
            after = collector.counts[Track.INPUTS]
            add(Track.OBSERVATIONS, tick, agent_id="a", after=after, observation=parts)
        add(Track.FRAMES, tick, after=collector.counts[Track.INPUTS], frame=parts)
    file.write(collector.take(math.inf))
    file.close()
    digest = file.digest
    assert digest is not None
    update = recording_update(
        path=file.path,
        format="clawblox-recording-v2",
        size_bytes=digest.size_bytes,
        sha256=digest.sha256,
    )
    ManifestFile(manifest_path(run), lock_wait=1.0).apply([update], durable=False)


# -- agents --------------------------------------------------------------------------------------


def make_agent(path: Path, *, is_live: bool, turns: int = 12) -> AgentDir:
    """Write the status and the usage of an agent."""
    agent = AgentDir(path)
    for directory in (agent.runtime, agent.log_file.parent):
        directory.mkdir(parents=True, exist_ok=True)
    ledger = Ledger.empty()
    ledger.usage = Usage(
        input_tokens=1_000 * turns, cached_tokens=90_000, output_tokens=8_000, cost_usd=0.25,
        turns=turns,
    )  # fmt: skip
    ledger.write(agent.usage_file)
    add_turn(agent, turns, is_live=is_live)
    return agent


def add_turn(agent: AgentDir, turn: int, *, is_live: bool = True) -> None:
    """Write the status of an agent in a turn."""
    StatusWriter(agent).write(
        AgentRecord(
            name=agent.path.name,
            driver="claude",
            session_id="3c0e4b38-90db-4ff4-a815-10466c61998a",
            state="working" if is_live else "stopped",
            reason="" if is_live else "budget of 12 turns used up",
            turn=turn,
            usage=Usage(input_tokens=1_000 * turn, output_tokens=8_000, cost_usd=0.25, turns=turn),
            cookie=uuid.uuid4().hex,
            dir=str(agent.path),
        )
    )


def write_turns(agent: AgentDir, size: int, *, steps: int = 25) -> int:
    """Write turns to the log and the events of an agent, until the log has a size.

    Args:
        agent: The agent.
        size: Size of the log in bytes; the log has an index like that of a running agent.
        steps: Number of calls per turn.

    Returns:
        The number of turns.
    """
    session, written, turn, seq = "3c0e4b38-90db-4ff4-a815-10466c61998a", 0, 0, 0
    events, index = EventFile(agent.events_file), LogIndex(agent.log_file)

    def note(kind: EventType, **more: Any) -> None:
        nonlocal seq
        seq += 1
        event = AgentEvent(
            time=format_utc_ms(time.time_ns()),
            subject=agent.path.name,
            kind=kind,
            data=more,
            seq=seq,
            session_id=session,
            turn=turn,
            raw_offset=written,
        )
        events.append([event])

    index.begin_run()
    with agent.log_file.open("ab", buffering=0) as log:
        note("process.started")
        while written < size:
            turn += 1
            note("turn.started", prompt="Please don't stop.")
            for lines in _write_steps(session, turn, steps):
                written += log.write(b"".join(lines))
            index.note_length()
            note("turn.finished", ok=True, text="done")
    return turn


def _write_steps(session: str, turn: int, steps: int) -> Iterator[Sequence[bytes]]:
    for step in range(steps):
        number, ident = turn * steps + step, f"toolu_{turn}_{step}"
        said = {"type": "text", "text": f"Step {number}. {_WORDS * 3}"}
        call = {
            "type": "tool_use",
            "id": ident,
            "name": "Bash",
            "input": {"command": f"curl -s $WORLD/observe | head -c {number}"},
        }
        result = {"type": "tool_result", "tool_use_id": ident, "content": _WORDS * 10}
        yield (
            _line("assistant", session, f"msg_{number}", [said, call]),
            _line("user", session, f"res_{number}", [result]),
        )


def _line(kind: str, session: str, ident: str, content: list[Any]) -> bytes:
    usage = {"input_tokens": 11, "cache_read_input_tokens": 7, "output_tokens": 5}
    message = {"id": ident, "type": "message", "role": kind, "content": content}
    if kind == "assistant":
        message |= {"model": "claude-sonnet-4-5", "usage": usage}
    return json.dumps({"type": kind, "message": message, "session_id": session}).encode() + b"\n"


def make_log(path: Path, size: int) -> None:
    """Write the log of a world: numbered lines of 100 bytes, with ``needle`` in the last."""
    path.parent.mkdir(parents=True, exist_ok=True)
    block = b"".join(
        b"%-98s\n" % b"2026-11-01T00:00:00.000Z tick %07d: %s" % (number, _WORDS[:40].encode())
        for number in range(100_000)
    )
    with path.open("wb") as log:
        for _ in range(max(1, size // len(block))):
            log.write(block)
        log.write(b"Needle\n")
