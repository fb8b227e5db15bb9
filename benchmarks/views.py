"""Cost of the pages of ``clawblox app``, requested like a browser does.

    python -m benchmarks.views [--json FILE] [--quick]

* A directory with runs and agents, first when nothing is known of it, then when all of it is looked
  at again; the floor reads, or inspects, the same files and does no more. Then a page that is asked
  for changes once a second; the floor asks the same server for a constant file.
* An experiment, an agent's log and a world's log that are long; floors read the same bytes, and
  ``json.loads`` or ``bytes.find`` them.
* A recording that is long: its page, and another moment of it, as the slider asks for it.
* In Chromium: eight tabs, and a step from its write until it is seen.
* ``inspect view`` of ``inspect_ai`` on the same trajectory, where it can be installed.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import attrs

from benchmarks.engine_processes import Served
from benchmarks.fresh import call_in_fresh_process
from benchmarks.measure import Row, median, peak_resident_bytes, report, reset_peak
from benchmarks.view_data import (
    add_turn,
    make_agent,
    make_log,
    make_recording,
    make_runs,
    write_turns,
)
from clawblox.agents.layout import AGENTS_DIR, AgentDir
from clawblox.agents.trajectory import TurnIndex, read_window
from clawblox.telemetry.log_segments import list_segments
from clawblox.web.files import make_finder, search
from clawblox.web.site import identify
from tests.engine.page.chromium import Chromium, Page

_ROOT: Final = Path(__file__).parent.parent
_INSPECT: Final = Path(tempfile.gettempdir()) / "clawblox-bench-inspect"
_LIVE: Final = 4
_WINDOW: Final = 256 << 10
_ENDED_LOOK_S: Final = 11.0
_PART: Final = re.compile(r'<section id="([\w-]+)" data-version="(\w+)"')

_SEEK: Final = """new Promise((done) => {
    const [slider, begun] = [document.getElementById("slider"), performance.now()];
    const seen = () => document.getElementById("seen").dataset.version;
    const before = seen();
    slider.value = %g;
    slider.dispatchEvent(new Event("input"));
    const look = () => {
        if (seen() === before) requestAnimationFrame(look);
        else done(performance.now() - begun);
    };
    look();
})"""


@attrs.frozen
class Scale:
    """The extent of the measurements.

    Attributes:
        runs: Number of run directories.
        attempts: Number of attempts of an experiment.
        agent_bytes: Size of an agent's log.
        log_bytes: Size of a world's log.
        recorded_s: Length of a recording in seconds of simulation time.
        idle_s: Duration of the measurement of an idle page, in seconds.
        rounds: Number of rounds of short measurements.
    """

    runs: int = 1000
    attempts: int = 300
    agent_bytes: int = 100_000_000
    log_bytes: int = 1_000_000_000
    recorded_s: int = 1800
    idle_s: float = 20.0
    rounds: int = 5


QUICK: Final = Scale(20, 10, 1_000_000, 10_000_000, 60, 2.0, 1)


class App:
    """``clawblox app`` as a process, and a connection to it.

    Attributes:
        address: The address of the first page.
        served: The process.
    """

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        port, self._key = re.findall(r":(\d+)/([\w-]+)/", address)[0]
        self.address = address
        self.served = Served(process.pid, int(port))
        self._connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=300)

    def get(self, page: str, status: int = 200) -> tuple[float, bytes]:
        """Return the time of an answer in seconds, and its body."""
        begun = time.perf_counter()
        self._connection.request("GET", f"/{self._key}/{page}")
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status not in (status, 204):
            raise RuntimeError(f"{page}: {answer.status} {body[:200]!r}")
        return time.perf_counter() - begun, body

    def rest(self, seconds: float) -> None:
        """Wait for longer than the server keeps a connection."""
        self.close()
        time.sleep(seconds)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()

    def take(self, page: str, rounds: int) -> float:
        """Return the median time of some answers, in milliseconds."""
        return 1e3 * median(self.get(page)[0] for _ in range(rounds))

    def ask_for_changes(self, page: str, seen: dict[str, str]) -> tuple[float, dict[str, str]]:
        """Request the changes of a page, like its script.

        Args:
            page: The page.
            seen: The versions of its parts, by name.

        Returns:
            The time of the answer in seconds, and the versions of the parts in it.
        """
        words = ",".join(f"{name}:{version}" for name, version in seen.items())
        taken, body = self.get(f"changes?{urlencode({'page': page, 'seen': words})}")
        return taken, dict(_PART.findall("".join(json.loads(body or b"[]"))))

    def poll(self, page: str, seconds: float, between: Callable[[int], object]) -> float:
        """Request changes once per second like a page; return the share of a core in percent."""
        seen = dict(_PART.findall(self.get(page)[1].decode()))
        before, begun = self.served.cpu_s(), time.monotonic()
        for second in range(1, int(seconds) + 1):
            time.sleep(max(0.0, begun + second - time.monotonic()))
            between(second)
            seen |= self.ask_for_changes(page, seen)[1]
        return 100 * (self.served.cpu_s() - before) / (time.monotonic() - begun)

    def poll_constant(self, seconds: float) -> float:
        """Request a constant file once per second; return the share of a core in percent."""
        before, begun = self.served.cpu_s(), time.monotonic()
        for second in range(1, int(seconds) + 1):
            time.sleep(max(0.0, begun + second - time.monotonic()))
            self.get("static/icon.svg")
        return 100 * (self.served.cpu_s() - before) / (time.monotonic() - begun)

    def peak_mb(self) -> float:
        """Return the peak resident memory of the process."""
        lines = Path(f"/proc/{self.served.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1e3


@contextlib.contextmanager
def serving(root: Path) -> Iterator[App]:
    """Serve a directory until the block ends."""
    words = [sys.executable, "-m", "clawblox", "app", str(root), "--port", "0", "--no-browser"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        try:
            assert process.stdout is not None
            lines = (re.search(r"http://\S+", line) for line in process.stdout)
            app = App(process, next(filter(None, lines))[0])
            with contextlib.closing(app):
                yield app
        finally:
            process.terminate()


# -- runs ----------------------------------------------------------------------------------------


def bench_runs(root: Path, scale: Scale) -> list[Row]:
    """Measure the first page of many runs: cold, warm, idle."""
    runs = make_runs(root, scale.runs, live=_LIVE)
    reading = median(_read_all(root) for _ in range(scale.rounds))
    inspecting = median(_inspect_all(root) for _ in range(scale.rounds))
    with serving(root) as app:
        cold = app.get("")[0]
        warm = []
        for number in range(scale.rounds):
            app.rest(_ENDED_LOOK_S if scale.runs > QUICK.runs else 0.0)
            warm.append(app.get(f"?start={number}")[0])
        agent = AgentDir(next((runs[-1] / AGENTS_DIR).iterdir()))
        idle = app.poll("", scale.idle_s, lambda _second: None)
        busy = app.poll("", scale.idle_s, lambda second: add_turn(agent, 100 + second))
        floor = app.poll_constant(scale.idle_s)
        size = len(app.get("")[1]) / 1e3
    what = f"{scale.runs:,} runs"
    return [
        Row(f"{what}: first page, cold", cold, "s", goal=1.5),
        Row(f"{what}: first page, cold, against reading their files", cold, "s", reading),
        Row(f"{what}: first page, warm", median(warm), "s", goal=0.25),
        Row(f"{what}: first page, warm, against stat", median(warm), "s", inspecting),
        Row(f"{what}: first page", size, "kB"),
        Row(f"{what}: idle page, {_LIVE} live", idle, "%", goal=1.0),
        Row(f"{what}: idle page, against a constant file", idle, "%", floor),
        Row(f"{what}: page with a turn a second", busy, "%"),
    ]


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.suffix in (".json", ".jsonl")]


def _read_all(root: Path) -> float:
    begun = time.perf_counter()
    for path in _files(root):
        for text in (
            path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        ):
            json.loads(text)
    return time.perf_counter() - begun


def _inspect_all(root: Path) -> float:
    paths = _files(root)
    begun = time.perf_counter()
    for path in paths:
        path.stat()
    return time.perf_counter() - begun


def bench_experiment(root: Path, scale: Scale) -> list[Row]:
    """Measure the page of an experiment: first, and again."""
    directory = root / "experiment"
    shutil.copytree(_ROOT / "tests" / "golden" / "experiment" / "v1_scored", directory)
    _add_attempts(directory, scale.attempts)
    lines = (directory / "journal.jsonl").read_bytes().splitlines()
    begun = time.perf_counter()
    for line in lines:
        json.loads(line)
    parsing = 1e3 * (time.perf_counter() - begun)
    page = f"experiment/{identify('experiment')}"
    with serving(root) as app:
        cold = 1e3 * app.get(page)[0]
        warm = app.take(page, scale.rounds)
        size = len(app.get(page)[1]) / 1e3
        idle = app.poll(page, scale.idle_s, lambda _second: None)
    what = f"experiment of {scale.attempts} attempts"
    return [
        Row(f"{what}: page, cold, against json.loads", cold, "ms", parsing),
        Row(f"{what}: page, warm, against json.loads", warm, "ms", parsing),
        Row(f"{what}: page", size, "kB"),
        Row(f"{what}: idle page", idle, "%"),
    ]


def _add_attempts(directory: Path, attempts: int) -> None:
    """Copy the first generation of the first chain to many chains."""
    plan = directory / "plan.toml"
    plan.write_text(plan.read_text().replace("repeats = 1", f"repeats = {attempts}"))
    journal = directory / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
    own = [line for line in lines if line.get("generation") == 1 and line["type"] != "rescored"]
    kept = lines[:2]
    for number in range(1, attempts + 1):
        for line in own:
            text = json.dumps(line).replace("r1-", f"r{number}-").replace('"r1"', f'"r{number}"')
            kept.append(json.loads(text) | {"seq": len(kept) + 1})
    journal.write_text("".join(json.dumps(line) + "\n" for line in kept))


# -- logs ----------------------------------------------------------------------------------------


def read_trajectory(directory: str, rounds: int) -> dict[str, float]:
    """Read windows of an agent's log, as the target of a process."""
    reset_peak()
    begun = time.perf_counter()
    turns = TurnIndex(Path(directory))
    turns.read_on()
    read_window(turns)
    cold = time.perf_counter() - begun
    warm = []
    for _ in range(rounds):
        begun = time.perf_counter()
        turns.read_on()
        read_window(turns)
        warm.append(time.perf_counter() - begun)
    return {"cold": 1e3 * cold, "warm": 1e3 * median(warm), "mb": peak_resident_bytes() / 1e6}


def bench_trajectory(root: Path, scale: Scale) -> list[Row]:
    """Measure windows of an agent's log, its page if it has one, and a search of the whole log."""
    run, *_ = make_runs(root, 1, live=0, agents=0)
    agent = make_agent(run / AGENTS_DIR / "A", is_live=False)
    write_turns(agent, scale.agent_bytes)
    taken = [
        call_in_fresh_process(read_trajectory, str(agent.path), 5) for _ in range(scale.rounds)
    ]
    cold, warm, memory = (median(one[key] for one in taken) for key in ("cold", "warm", "mb"))
    floor = 1e3 * median(_parse_end(agent.log_file) for _ in range(scale.rounds))
    what = f"agent.log of {scale.agent_bytes / 1e6:g} MB"
    rows = [
        Row(f"{what}: window, cold", cold, "ms", goal=150.0),
        Row(f"{what}: window, cold, against json.loads", cold, "ms", floor),
        Row(f"{what}: window, warm", warm, "ms", goal=60.0),
        Row(f"{what}: window, warm, against json.loads", warm, "ms", floor),
        Row(f"{what}: memory of the process", memory, "MB", goal=80.0),
        *_time_search(what, agent.log_file, b"tool_result_x", 0.5),
    ]
    page = f"run/{identify(os.path.relpath(run, root))}/agent/"
    page += identify(os.path.relpath(agent.path, root))
    with serving(root) as app:
        app.get("")
        try:
            first = 1e3 * app.get(page)[0]
        except RuntimeError:
            return rows + bench_inspect(agent.log_file, f"{what}: window, cold", cold)
        rows += [
            Row(f"{what}: page, cold", first, "ms", goal=150.0),
            Row(f"{what}: page, warm", app.take(page, scale.rounds), "ms", goal=60.0),
            Row(f"{what}: page", len(app.get(page)[1]) / 1e3, "kB", goal=150.0),
            Row(f"{what}: memory of the server", app.peak_mb(), "MB", goal=80.0),
        ]
    return rows + bench_inspect(agent.log_file, f"{what}: page, cold", first)


def _parse_end(log: Path) -> float:
    begun = time.perf_counter()
    with log.open("rb") as file:
        file.seek(-min(_WINDOW, log.stat().st_size), os.SEEK_END)
        for line in file.read().splitlines()[1:]:
            json.loads(line)
    return time.perf_counter() - begun


def _time_search(what: str, log: Path, wanted: bytes, goal: float) -> list[Row]:
    find, begun = make_finder(wanted.decode()), time.perf_counter()
    reached: int | None = 0
    while reached is not None:
        reached = search(log.parent, list_segments(log), find, reached).reached
    taken = time.perf_counter() - begun
    begun = time.perf_counter()
    with log.open("rb") as file:
        while chunk := file.read(1 << 20):
            chunk.lower().find(wanted)
    floor = time.perf_counter() - begun
    return [
        Row(f"{what}: literal search in all", taken, "s", goal=goal),
        Row(f"{what}: literal search, against bytes.find", taken, "s", floor),
    ]


def bench_log(root: Path, scale: Scale) -> list[Row]:
    """Measure the page of a long log at its end and in its middle, and a full search."""
    run, *_ = make_runs(root, 1, live=0, agents=0)
    log = run / "logs" / "w000.log"
    make_log(log, scale.log_bytes)
    page = f"run/{identify(os.path.relpath(run, root))}/log/w000"
    what = f"log of {scale.log_bytes / 1e6:g} MB"
    with serving(root) as app:
        app.get("")
        rows = [
            Row(f"{what}: page of its end", app.take(page, scale.rounds), "ms", goal=50.0),
            Row(
                f"{what}: page of its middle",
                app.take(f"{page}?at={scale.log_bytes // 2}", scale.rounds),
                "ms",
                goal=50.0,
            ),
            Row(f"{what}: memory of the server", app.peak_mb(), "MB"),
        ]
    return rows + _time_search(what, log, b"needle", 2.5)


def bench_replay(root: Path, scale: Scale) -> list[Row]:
    """Measure the page of a long recording, and the seek to another moment."""
    run, *_ = make_runs(root, 1, live=0, agents=1)
    make_recording(run, scale.recorded_s)
    page = f"run/{identify(os.path.relpath(run, root))}/replay/1"
    moments = [scale.recorded_s * (0.1 + 0.8 * step / scale.rounds) for step in range(scale.rounds)]
    with serving(root) as app:
        app.get("")
        taken, body = app.get(page)
        seen = dict(_PART.findall(body.decode()))
        seeks = [app.ask_for_changes(f"{page}?t={at:g}", seen) for at in moments]
        states = [app.get(f"{page}/states?from={at:g}&to={at + 10:g}")[0] for at in moments]
        memory = app.peak_mb()
        shown = _seek(app.address + page, moments)
    if not all("seen" in changed for _, changed in seeks):
        raise RuntimeError(f"{page}: a moment has nothing new")
    what = f"recording of {scale.recorded_s / 60:g} min"
    return [
        Row(f"{what}: page, cold", 1e3 * taken, "ms"),
        Row(f"{what}: seek", 1e3 * median(one for one, _ in seeks), "ms", goal=150.0),
        Row(f"{what}: seek until it is seen", shown, "ms", goal=150.0),
        Row(f"{what}: states of ten seconds", 1e3 * median(states), "ms", goal=150.0),
        Row(f"{what}: memory of the server", memory, "MB"),
    ]


# -- in a browser --------------------------------------------------------------------------------


def _seek(address: str, moments: Sequence[float]) -> float | None:
    """Return the time until the slider shows the observations of agents, in milliseconds."""
    with browsing() as browser:
        if browser is None:
            return None
        with browser.open(address, width=1280, height=900) as tab:
            tab.wait_for("document.readyState === 'complete' && document.querySelector('#seen')")
            return median(float(tab.evaluate(_SEEK % at)) for at in moments)


@contextlib.contextmanager
def browsing() -> Iterator[Chromium | None]:
    """Run Chromium until the block ends; yield None if it is missing."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        yield None
        return
    made = tempfile.TemporaryDirectory(
        prefix="clawblox-chromium-", dir="/tmp", ignore_cleanup_errors=True
    )
    with made as profile:
        browser = Chromium(Path(program), Path(profile))
        try:
            yield browser
        finally:
            browser.close()


def bench_browser(root: Path, scale: Scale) -> list[Row]:
    """Measure the waiting times of a user, with one tab and with eight."""
    with browsing() as browser:
        if browser is None:
            return [Row("a step until it is seen", None, "ms", note="no chromium")]
        return _watch(browser, root, scale)


def _watch(browser: Chromium, root: Path, scale: Scale) -> list[Row]:
    run, *_ = make_runs(root, 1, live=1)
    log = run / "logs" / "w000.log"
    make_log(log, 1_000_000)
    agent = AgentDir(next((run / AGENTS_DIR).iterdir()))
    page = f"run/{identify(os.path.relpath(run, root))}/log/w000"
    rows = []
    with serving(root) as app, contextlib.ExitStack() as stack:
        numbers = itertools.count(1000)

        def append(number: int) -> None:
            with log.open("a") as file:
                file.write(f"seen {number}\n")

        def wait(tab: Page, address: str, write: Callable[[int], None], word: str) -> float:
            tab.call("Page.navigate", url=app.address + address)
            tab.wait_for("document.readyState === 'complete' && document.querySelector('main')")
            taken = []
            for number in itertools.islice(numbers, 2 * scale.rounds):
                begun = time.perf_counter()
                write(number)
                shown = f"document.querySelector('main').textContent.includes('{word} {number}')"
                tab.wait_for(shown)
                taken.append(1e3 * (time.perf_counter() - begun))
            return max(taken)

        tab = stack.enter_context(browser.open(app.address, width=1280, height=900))
        lines = wait(tab, page, append, "seen")
        turns = wait(tab, "", lambda number: add_turn(agent, number), "turn")
        rows += [
            Row("a line of a log until it is seen", lines, "ms", goal=1500.0, note="longest"),
            Row("a turn until it is seen", turns, "ms", goal=1500.0, note="longest"),
        ]
        for _ in range(7):
            stack.enter_context(browser.open(app.address, width=1280, height=900))
        before, begun = app.served.cpu_s(), time.monotonic()
        time.sleep(scale.idle_s)
        share = 100 * (app.served.cpu_s() - before) / (time.monotonic() - begun)
        tab.call("Page.bringToFront")
        eight = wait(tab, page, append, "seen")
        rows += [
            Row("eight tabs: the server", share, "%"),
            Row("eight tabs: a line until it is seen", eight, "ms", goal=1500.0),
        ]
    return rows


# -- inspect -------------------------------------------------------------------------------------


def bench_inspect(log: Path, what: str, page_ms: float) -> list[Row]:
    """Compare with the work of Inspect's viewer before it can show a sample."""
    name = f"{what}, against inspect_ai reading the sample"
    python = _INSPECT / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", _INSPECT], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", "inspect_ai"], check=True)
        script = str(Path(__file__).with_name("views_inspect.py"))
        subprocess.run([python, "-P", script, "write", log, log.parent], check=True)
        reading = [python, "-P", script, "read", log.parent / "views.eval"]
        found = json.loads(subprocess.run(reading, check=True, capture_output=True).stdout)
    except (OSError, subprocess.CalledProcessError) as error:
        return [Row(name, None, "ms", note=f"inspect_ai cannot be used here: {error}")]
    return [Row(name, page_ms, "ms", 1e3 * found["s"], 1.0)]


BENCHES: Final[Sequence[Callable[[Path, Scale], list[Row]]]] = (
    bench_runs,
    bench_experiment,
    bench_trajectory,
    bench_log,
    bench_replay,
    bench_browser,
)


def measure(scale: Scale) -> list[Row]:
    """Return all figures."""
    rows = []
    for bench in BENCHES:
        with tempfile.TemporaryDirectory() as scratch:
            rows += bench(Path(scratch), scale)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    report("pages", measure(QUICK if options.quick else Scale()), options.json)


if __name__ == "__main__":
    main()
