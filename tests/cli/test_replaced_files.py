"""Commands neither hang, grow nor print a traceback if files are replaced with other things.

The list of the files is made by tracing what commands open below a run directory, an agent's
directory and a world.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import pytest

from tests.agents.standins import install
from tests.cli.conftest import Command, environment
from tests.support.processes import marked_processes
from tests.support.template import Template
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import make_world

TRACED = Path(__file__).with_name("traced.py")
PRECIOUS = "a file of the user\n"


@attrs.define
class Place:
    """A world, a run in it with a save, an agent and an archive, and copies of them to break.

    Records contain absolute paths, so the copies use the same place one after the other.
    """

    root: Path
    template: Template
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)
    _unbroken: dict[str, tuple[int, str]] = attrs.field(factory=dict)

    @property
    def live(self) -> Path:
        return self.root / "live"

    @property
    def run(self) -> Path:
        return self.live / "run"

    @property
    def agent(self) -> Path:
        return self.run / "agents" / "Eko"

    def words(self) -> list[list[str]]:
        """Return the commands that show or continue an ended run."""
        run, agent = str(self.run), str(self.agent)
        archive = str(next((self.run / "checkpoints").glob("*.ckpt"), self.run / "none.ckpt"))
        return [
            ["ps", run],
            ["logs", run],
            ["logs", run, "-n", "3"],
            ["lineage", run],
            ["save", run],
            ["resume", run, "--dry-run"],
            ["wait", run],
            ["agent", "status", agent],
            ["trajectory", agent],
            ["ckpt", "inspect", archive],
            ["stop", run],
        ]

    def start(self, words: Sequence[str], **env: str) -> Command:
        directory = self.root / f"command-{next(self._numbers)}"
        directory.mkdir()
        home = {"CLAWBLOX_HOME": str(self.live / "home"), **env}
        with (
            Path(os.devnull).open("rb") as nothing,
            (directory / "out").open("wb") as out,
            (directory / "err").open("wb") as err,
        ):
            streams = [nothing.fileno(), out.fileno(), err.fileno()]
            process = self.template.start(
                str(TRACED), words, streams, environment(home), cwd=self.root
            )
        return Command(process, directory)

    def call(self, words: Sequence[str], **env: str) -> tuple[int, str]:
        """Run a command to its end; return its status and output."""
        command = self.start(words, **env)
        try:
            status = command.process.wait(HANG_S)
        finally:
            command.process.kill()
        said = command.out + command.err
        shutil.rmtree(command.directory)
        assert "Traceback" not in said, f"{words}: {said}"
        return status, said

    def call_unbroken(self, words: Sequence[str]) -> tuple[int, str]:
        """Run a command once with unchanged files; return its status and output."""
        key = " ".join(words)
        if key not in self._unbroken:
            self.renew()
            self._unbroken[key] = self.call(words)
        return self._unbroken[key]

    def renew(self) -> None:
        """Restore all files."""
        shutil.rmtree(self.live, ignore_errors=True)
        shutil.copytree(self.root / "kept", self.live, symlinks=True)

    def keep(self) -> None:
        shutil.copytree(self.live, self.root / "kept", symlinks=True)


@pytest.fixture(scope="module")
def place(template: Template) -> Iterator[Place]:
    root = Path(tempfile.mkdtemp(prefix="clawblox-replaced-", dir="/tmp"))
    try:
        place = Place(root, template)
        place.live.mkdir()
        make_world(place.live)
        binary = install(root / "bin", "claude")
        env = {"PATH": f"{binary.parent}:{os.environ['PATH']}", "ANTHROPIC_API_KEY": "none"}
        agent = ["--agent", "claude", "--max-turns", "2", "--port", "0"]
        world = str(place.live / "counter")
        status, said = place.call(["run", world, *agent, "--run-dir", str(place.run)], **env)
        assert status == 0, said
        place.keep()
        yield place
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _trace(place: Place) -> dict[str, list[Path]]:
    """Return the files below the place that commands open, by the words of the command."""
    found: dict[str, list[Path]] = {}
    for words in [*place.words(), ["up"]]:
        place.renew()
        report = place.root / "opened"
        if words == ["up"]:
            command = place.start(_up(place), OPENED=str(report))
            command.wait_for("ready after")
            assert place.call(["save", str(place.run)])[0] == 0
            assert command.interrupt() == 130
        else:
            place.call(words, OPENED=str(report))
        paths = {Path(line) for line in report.read_text().splitlines()}
        report.unlink()
        below = sorted(path for path in paths if path.is_relative_to(place.live))
        found[" ".join(words[:2] if words[0] in ("agent", "ckpt") else words[:1])] = [
            path for path in below if not path.is_dir() and not re.search(r"\.partial$", path.name)
        ]
    return found


def _up(place: Place) -> list[str]:
    return ["up", str(place.live / "counter"), "-n", "1", "--fresh", "--run-dir", str(place.run)]


@pytest.fixture(scope="module")
def opened(place: Place) -> dict[str, list[Path]]:
    return _trace(place)


# -------------------------------------------------------------------------------- replacements


def _pipe(path: Path, _precious: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path, _precious: Path) -> None:
    path.mkdir()


def _link(path: Path, precious: Path) -> None:
    path.symlink_to(precious)


def _second_name(path: Path, precious: Path) -> None:
    path.hardlink_to(precious)


def _device(path: Path, _precious: Path) -> None:
    os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero


def _sparse(path: Path, _precious: Path) -> None:
    path.touch()
    os.truncate(path, 8 << 40)


def _no_permission(path: Path, _precious: Path) -> None:
    path.write_text("{}")
    path.chmod(0)


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "pipe": _pipe,
    "directory": _directory,
    "link": _link,
    "second name": _second_name,
    "device": _device,
    "sparse": _sparse,
    "no permission": _no_permission,
}


def _replace(place: Place, path: Path, kind: str) -> Path:
    """Replace a file with something else; return a user's file that must not change."""
    precious = place.live / "precious"
    precious.write_text(PRECIOUS)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        KINDS[kind](path, precious)
    except PermissionError:
        pytest.skip(f"this machine allows no {kind}")
    return precious


def _check(place: Place, path: Path, kind: str, commands: Sequence[Sequence[str]]) -> None:
    env = {"WITHOUT_PRIVILEGE": "yes"} if kind == "no permission" else {}
    for words in commands:
        expected, said_before = place.call_unbroken(words)
        place.renew()
        precious = _replace(place, path, kind)
        status, said = place.call(words, **env)
        assert precious.read_text() == PRECIOUS, f"{words}: {said}"
        # A hard link may be read but must never be written.
        is_same = status == expected and _shape(said) == _shape(said_before)
        is_same |= kind == "second name"
        assert is_same or path.name in said, f"{words} ended with {status}: {said}"


def _shape(said: str) -> str:
    """Return an output without spaces and numbers, which may be ages."""
    return re.sub(r"[\d.]+(m\d+)?s?|\s+", " ", said)


def _sample(opened: dict[str, list[Path]]) -> list[tuple[str, Path]]:
    """Return a file for each command that opens files, a different one if possible."""
    chosen: list[tuple[str, Path]] = []
    for words, paths in opened.items():
        known = {path for _, path in chosen}
        fresh = [path for path in paths if path not in known] or paths
        if fresh and words != "up":
            chosen.append((words, fresh[0]))
    return chosen


def _commands(place: Place, words: str) -> list[list[str]]:
    return [one for one in place.words() if " ".join(one).startswith(words)]


@pytest.mark.thorough
def test_trace_finds_the_files_that_commands_open(
    place: Place, opened: dict[str, list[Path]]
) -> None:
    names = {path.name for paths in opened.values() for path in paths}
    assert names >= {
        "agent.log",
        "events.jsonl",
        "manifest.json",
        "manifest.json.lock",
        "records.jsonl",
        "run.lock",
        "runs.jsonl",
        "status.json",
        "t000000.ckpt",
        "w000.lock",
        "w000.log",
        "w000.log.index",
        "world.toml",
    }, sorted(names)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["pipe", "sparse", "no permission"])
def test_replaced_file_neither_hangs_a_command_nor_fills_memory(
    place: Place, opened: dict[str, list[Path]], kind: str
) -> None:
    """A sample of the next test, with a different file for each command."""
    for words, path in _sample(opened)[:: 2 if kind == "pipe" else 3]:
        _check(place, path, kind, _commands(place, words)[:1])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_every_command_survives_the_replacement_of_every_file(
    place: Place, opened: dict[str, list[Path]], kind: str
) -> None:
    for path in sorted({path for paths in opened.values() for path in paths}):
        _check(place, path, kind, place.words())


# ------------------------------------------------------------------- with a running orchestrator


def _live_through(place: Place, path: Path, kind: str) -> None:
    """Replace a file of a running orchestrator, which must keep working and end on request."""
    place.renew()
    command = place.start(_up(place))
    try:
        command.wait_for("ready after")
        precious = _replace(place, path, kind)
        run = str(place.run)
        for words in (["ps", run], ["ps"], ["logs", run, "-n", "3"], ["save", run]):
            place.call(words)
        command.send(signal.SIGTERM)
        command.process.wait(HANG_S)
        said = command.out + command.err
        assert "Traceback" not in said, said
        assert "did not end" not in said, said
        assert precious.read_text() == PRECIOUS
        assert place.call(["stop", run])[0] in (0, 1)
    finally:
        command.process.kill()
    wait_until(lambda: not marked_processes(), what="no process of a world is left")


@pytest.mark.thorough
def test_a_pipe_in_place_of_the_manifest_of_an_instance_hangs_neither_commands_nor_orchestrator(
    place: Place, opened: dict[str, list[Path]]
) -> None:
    (manifest, *_) = [
        path for path in opened["up"] if path.name == "manifest.json" and "worlds" in path.parts
    ]
    _live_through(place, manifest, "pipe")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "no permission"])
def test_running_orchestrator_survives_the_replacement_of_every_file(
    place: Place, opened: dict[str, list[Path]], kind: str
) -> None:
    for path in opened["up"]:
        _live_through(place, path, kind)
