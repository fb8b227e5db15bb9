"""Worlds that cannot keep their rate: detection and reports."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from clawblox import AsyncWorld, read_manifest
from clawblox.instance import watch
from clawblox.instance.watch import BehindDetector, CoreBudget
from clawblox.protocol import HealthReport, ScriptErrors, TickRate, parse_report, report_fields
from clawblox.rundir.operations import stop_instances
from clawblox.rundir.status import read_run
from clawblox.server.payload import encode_json
from clawblox.views.event_lines import describe_event
from clawblox.views.rows import instance_columns, make_row, summarise
from tests.support.crowd import until
from tests.support.waiting import HANG_S, wait_until_async

WORLD = """
import json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        is_operator = self.headers["X-Operator-Token"] == os.environ["WORLD_OPERATOR_TOKEN"]
        body = Path("health.json").read_bytes() if is_operator else b"{}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["WORLD_PORT"])), Handler).serve_forever()
"""


def rate(share: float, **more: float) -> TickRate:
    return TickRate(nominal_hz=60.0, achieved_hz=60.0 * share, **more)


def test_a_world_counts_as_behind_after_ten_seconds_below_nine_tenths():
    detector = BehindDetector()
    steps = [(0, 0.5), (9.9, 0.89), (10, 0.89), (30, 0.1), (31, 0.9), (32, 0.5), (40, 1), (50, 0.5)]
    changes = [(now, detector.is_behind) for now, share in steps if detector.note(rate(share), now)]
    assert changes == [(10, True), (31, False)]


def test_lack_of_processors_for_all_worlds_is_announced_once():
    budget = CoreBudget(2)
    reports = [("a", 1.5), ("b", 0.75), ("c", 0.5), ("a", 1.5), ("b", 1.0), ("b", 1.0), ("c", 0.5)]
    assert [each for each in reports if budget.note(*each)] == [("b", 1.0)], "all have reported"
    assert (budget.needed, budget.worlds) == (3.0, 3)


def test_lack_of_processors_is_announced_again_after_a_recovery():
    budget = CoreBudget(2)
    assert [budget.note("a", cores) for cores in (3, 3, 3)] == [False, True, False]
    assert not budget.note("b", None), "a world that has ended needs nothing"
    assert [budget.note("a", cores) for cores in (2, 3, 3)] == [False, False, True]
    assert not budget.note("a", None)
    assert (budget.needed, budget.worlds) == (0, 0)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"tick_rate_hz": 60, "achieved_rate_hz": 30.5}, rate(30.5 / 60)),
        (
            {"status": "ok", "tick_rate_hz": 60.0, "achieved_rate_hz": 0, "tick_cost_s": 0.5},
            rate(0.0, tick_cost_s=0.5),
        ),
        ({"tick_rate_hz": 60, "achieved_rate_hz": 60, "tick_cost_s": -1}, rate(1.0)),
        ({"status": "ok"}, None),
        ({"tick_rate_hz": 60}, None),
        ({"tick_rate_hz": 0, "achieved_rate_hz": 1}, None),
        ({"tick_rate_hz": -60, "achieved_rate_hz": 1}, None),
        ({"tick_rate_hz": 1e300, "achieved_rate_hz": 1}, None),
        ({"tick_rate_hz": 10**400, "achieved_rate_hz": 1}, None),
        ({"tick_rate_hz": "60", "achieved_rate_hz": 1}, None),
        ({"tick_rate_hz": True, "achieved_rate_hz": True}, None),
        ({"tick_rate_hz": 60, "achieved_rate_hz": None}, None),
        ({"tick_rate_hz": 60, "achieved_rate_hz": 60, "more": "x" * 5000}, None),
        ([1], None),
        ("ok", None),
    ],
)
def test_rate_accepts_only_numbers_within_limits(body, expected):
    assert parse_report(200, json.dumps(body).encode()) == HealthReport(rate=expected)


BOTH = {"tick_rate_hz": 60, "achieved_rate_hz": 60, "errors": 3, "last_error": "main.lua:2: no"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (BOTH, ScriptErrors(3, "main.lua:2: no")),
        ({"errors": 1}, ScriptErrors(1, "")),
        ({"errors": 2**53, "last_error": ["no"]}, ScriptErrors(2**53, "")),
        ({"errors": 1, "last_error": "\ud800"}, ScriptErrors(1, "\ufffd")),
        ({"errors": 0, "last_error": "before"}, None),
        ({"errors": 2**53 + 1}, None),
        ({"errors": 10**400}, None),
        ({"errors": -1}, None),
        ({"errors": 1.0}, None),
        ({"errors": "3"}, None),
        ({"errors": True}, None),
        ({"last_error": "main.lua:2: no"}, None),
        ({"errors": 1, "last_error": "x" * 5000}, None),
    ],
)
def test_script_error_count_accepts_only_whole_numbers_within_limits(body, expected):
    assert parse_report(200, json.dumps(body).encode()).errors == expected


@pytest.mark.parametrize(
    "body", [b"", b"{", b"# Play\n", b"\xff{}", b'{"tick_rate_hz": NaN, "errors": NaN}']
)
def test_answer_other_than_a_json_object_has_no_report(body):
    assert parse_report(200, body) == HealthReport()


@pytest.mark.parametrize("status", [None, 204, 404, 503])
def test_only_a_healthy_answer_reports_rate_and_errors(status):
    assert parse_report(status, json.dumps(BOTH).encode()) == HealthReport()


@pytest.mark.parametrize("char", ["x", "\n", "é", "\U0001f600"])
def test_report_fields_fit_with_any_last_error(char):
    sent = ScriptErrors(2**53, 1000 * char)
    body = encode_json({"status": "ok", **report_fields(rate(0.5, tick_cost_s=0.001), sent)})
    errors = parse_report(200, body).errors
    assert errors.count == sent.count
    assert sent.last.startswith(errors.last)
    assert len(errors.last) >= 256


@pytest.fixture
def world_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "slow"
    directory.mkdir()
    (directory / "world.py").write_text(WORLD)
    (directory / "world.toml").write_text(
        f'name = "slow"\n[run]\ncommand = {json.dumps([sys.executable, "world.py"])}\n'
        '[run.liveness]\npath = "/health"\nperiod = 0.02\ntimeout = 20\n'
    )
    report(directory, rate(1.0, tick_cost_s=0.001))
    return directory


def report(
    directory: Path, found: TickRate | None = None, errors: ScriptErrors | None = None
) -> None:
    """Make the world report a rate and script errors from now on."""
    new = directory / "new.json"
    new.write_text(json.dumps({"status": "ok", **report_fields(found, errors)}))
    new.rename(directory / "health.json")


@pytest.mark.anyio
async def test_world_that_falls_behind_emits_an_event_and_shows_in_the_status(
    world_dir, tmp_path, monkeypatch
):
    monkeypatch.setattr(watch, "BEHIND_AFTER_S", 0.0)
    run = tmp_path / "run"
    async with AsyncWorld(dir=world_dir) as world, world.events() as events:
        await world.start(run_dir=run)
        await wait_until_async(lambda: "w000" in world.tick_rates)
        assert world.tick_rates["w000"].share == 1.0
        report(world_dir, rate(0.5, tick_cost_s=1e3))
        seen = await until(events, "fell_behind", ["w000"])
        assert dict(seen[-1].data) == {"achieved_hz": 30.0, "nominal_hz": 60.0}
        line = describe_event(seen[-1])
        assert line.text == "runs slower than real time: 30.0 of 60 ticks a second"
        assert line.needs_attention
        crowded = (await until(events, "overcommitted", ["w000"]))[-1]
        assert crowded.data["needed"] == 60_000.0
        assert "the ticks of 1 world need 60000.0 cores" in describe_event(crowded).text
        assert world.metrics.falls_behind == 1
        await until_shown(run, "30/60")
        report(world_dir, rate(0.95, tick_cost_s=0.001))
        await until(events, "caught_up", ["w000"])
        await until_shown(run, "57/60")
    await until_shown(run, "")


async def until_shown(run: Path, text: str) -> None:
    with anyio.fail_after(HANG_S):
        while await anyio.to_thread.run_sync(shown, run) != text:
            await anyio.lowlevel.checkpoint()


def shown(run: Path) -> str:
    """Return the rate of the only instance in ``ps``."""
    (status,) = read_run(run).instances
    columns = instance_columns([make_row(status, status.state)])
    (rate,) = next(column.cells for column in columns if column.heading == "RATE")
    return rate


@pytest.mark.anyio
async def test_script_errors_emit_an_event_and_are_recorded(world_dir, tmp_path):
    run = tmp_path / "run"
    report(world_dir)
    async with AsyncWorld(dir=world_dir) as world, world.events() as events:
        started = await world.start(run_dir=run)
        token = started.env["WORLD_OPERATOR_TOKEN"]
        report(world_dir, errors=ScriptErrors(2, f"main.lua:2:\nno {token}"))
        event = (await until(events, "script_error", ["w000"]))[-1]
        assert dict(event.data) == {"count": 2, "last": "main.lua:2:\nno ***"}
        line = describe_event(event)
        assert line.text == "2 script errors, the last: main.lua:2:"
        assert line.needs_attention
        await until_errors(run, ScriptErrors(2, "main.lua:2:\nno ***"))
        report(world_dir, errors=ScriptErrors(5, "main.lua:9: off"))
        await until_errors(run, ScriptErrors(5, "main.lua:9: off"))
        await world.stop()
        assert "script_error" not in {
            one.kind for one in await until(events, "stopped", ["w000"])
        }, "one event for each life"
        run_of_manifest = (await off_loop(read_manifest, run)).run
        assert run_of_manifest["script_errors"] == {"count": 5, "last": "main.lua:9: off"}
        report(world_dir)
        await world.start(run_dir=run)
        await world.stop()
    assert "script_errors" not in (await off_loop(read_manifest, run)).run, (
        "those of the last start"
    )


@pytest.mark.anyio
async def test_stop_requests_the_last_script_errors(world_dir, tmp_path):
    toml = world_dir / "world.toml"
    toml.write_text(toml.read_text().replace("period = 0.02", f"period = {HANG_S}"))
    report(world_dir, errors=ScriptErrors(1, "main.lua:2: no"))
    run = tmp_path / "run"
    async with AsyncWorld(dir=world_dir) as world:
        await world.start_many(2, run_dir=run)
        await world.stop_all()
    statuses = (await off_loop(read_run, run)).instances
    for status in statuses:
        assert status.script_errors == ScriptErrors(1, "main.lua:2: no")
        manifest = await off_loop(read_manifest, status.instance_dir)
        assert manifest.run["script_errors"]["count"] == 1
    lines = summarise(run, statuses)
    text = "1 script error, the last: main.lua:2: no"
    assert lines[1] == f"Script errors in 2 of 2, most in w000: {text}"


DETACH = """
import sys, time
from pathlib import Path
from clawblox import World
from clawblox.rundir.records import read_record
directory, run = map(Path, sys.argv[1:])
with World(dir=directory) as world:
    world.start_many(1, run_dir=run, detach=True)
    while read_record(run, "w000").script_errors is None:
        time.sleep(0.01)
"""


@pytest.mark.thorough
@pytest.mark.anyio
async def test_manifest_has_the_script_errors_of_an_instance_stopped_by_another_program(
    world_dir, tmp_path
):
    errors = ScriptErrors(1, "main.lua:2: no")
    report(world_dir, errors=errors)
    run = tmp_path / "run"
    await anyio.run_process([sys.executable, "-c", DETACH, str(world_dir), str(run)])
    await until_errors(run, errors)
    await stop_instances(run, grace_seconds=5)
    (status,) = (await off_loop(read_run, run)).instances
    manifest = await off_loop(read_manifest, status.instance_dir)
    assert manifest.run["status"] == "complete"
    assert manifest.run["script_errors"] == {"count": 1, "last": "main.lua:2: no"}


@pytest.mark.thorough
@pytest.mark.anyio
async def test_restarted_world_has_only_its_own_script_errors(world_dir, tmp_path):
    run = tmp_path / "run"
    report(world_dir, errors=ScriptErrors(1, "main.lua:2: no"))
    async with AsyncWorld(dir=world_dir) as world:
        await world.start(run_dir=run)
        await until_errors(run, ScriptErrors(1, "main.lua:2: no"))
        report(world_dir)
        await world.restart(fresh=True)
        await until_errors(run, None)


off_loop = anyio.to_thread.run_sync


async def until_errors(run: Path, errors: ScriptErrors | None) -> None:
    """Wait until the only instance's status has these errors, and ``ps`` their number."""
    with anyio.fail_after(HANG_S):
        while (status := (await off_loop(read_run, run)).instances[0]) is not None:
            if status.script_errors == errors:
                break
            await anyio.lowlevel.checkpoint()
    shown = next(c for c in instance_columns([make_row(status, "")]) if c.heading == "ERRORS")
    assert shown.cells == [str(errors.count) if errors else ""]


@pytest.mark.anyio
async def test_world_without_a_rate_is_healthy(world_dir, tmp_path):
    report(world_dir, None)
    async with AsyncWorld(dir=world_dir) as world, world.events() as events:
        started = await world.start(run_dir=tmp_path / "run")
        supervisor = next(iter(world._fleet.instances))
        await supervisor.calls.pacer.probe_now()
        assert world.tick_rates == {}
        await until_shown(tmp_path / "run", "")
        assert started.pid
        await world.stop()
        assert {one.kind for one in await until(events, "stopped", ["w000"])} <= {
            *("started", "ready", "stopped"),
        }
