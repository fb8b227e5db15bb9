"""Every test runs in its own directories, and fails if it leaves anything behind."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import attrs
import hypothesis
import pytest
import structlog
from blockbuster import BlockBuster

from tests.optional import require_package, require_program
from tests.support.model_api import ModelApi, model_api
from tests.support.processes import kill_processes, live_processes, look_again, name_session
from tests.support.programs import Programs
from tests.support.resources import Resources
from tests.support.template import Template, running_template
from tests.support.tmux import Tmux, tmux_server
from tests.support.waiting import POLL_INTERVAL_S

SETTLE_TIMEOUT_S = 20.0

hypothesis.settings.register_profile("thorough", deadline=None, print_blob=True)
hypothesis.settings.register_profile(
    "clawblox", hypothesis.settings.get_profile("thorough"), max_examples=25
)


def pytest_configure(config: pytest.Config) -> None:
    """Try few examples by default."""
    is_thorough = config.option.markexpr == "thorough"
    hypothesis.settings.load_profile("thorough" if is_thorough else "clawblox")


# It would hide effects on buffered output.
os.environ.pop("PYTHONUNBUFFERED", None)

# A shell's background programs ignore the first two signals and nohup's the third, and all programs
# of the tests would inherit that. Unlike an ignored signal, a handler is not inherited.
for number, handler in {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGHUP: lambda _number, _frame: None,
}.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Exclude the tests themselves from garbage collection, because they stay until the end."""
    gc.disable()
    try:
        share_compiling(session.config)
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start with the static checks, because mypy without a cache takes longer than any test.

    A thorough run tries examples again, and more.
    """
    items.sort(key=lambda item: item.path.name != "test_checks.py")
    if config.option.markexpr == "thorough":
        for item in items:
            if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
                item.add_marker("thorough")


def share_compiling(config: pytest.Config) -> None:
    """Import the tests, starting at a different place in each process of the run.

    All processes collect at the same time, so each would compile every module. This way, each
    process finds most modules already compiled by the others, as do the programs of the tests.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        sys.pycache_prefix = str(Path(config.option.basetemp).parent / "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    root = config.rootpath
    modules = sorted(
        ".".join(path.relative_to(root).with_suffix("").parts)
        for place in config.args
        for path in (root / place).rglob("test_*.py")
    )
    first = len(modules) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for module in modules[first:] + modules[:first]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # pytest imports it again
            importlib.import_module(module)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look for the programs that a test needs before its set-up."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            require_program(name)
    if item.get_closest_marker("ray"):
        require_package("ray", "ray")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Run async tests on asyncio; modules that also support trio parametrize this name."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _never_block_the_loop() -> Iterator[None]:
    """Fail a test in which code of the package blocks a running event loop."""
    blockbuster = BlockBuster(scanned_modules=["clawblox"])
    for function in blockbuster.functions.values():
        # These constructors read small local files, as their documentation says.
        function.can_block_in("clawblox/config/world_toml.py", {"read_world_config"})
        function.can_block_in("clawblox/world/open_world.py", {"attach"})
        function.can_block_in("clawblox/team/async_team.py", {"resume"})
        # The sync facade blocks its caller's loop on purpose.
        function.can_block_in("clawblox/concurrency/portal.py", {"run", "enter", "leave"})
    blockbuster.activate()
    for name in ("os.path.abspath", "os.getcwd"):  # they do not access the disk
        blockbuster.functions[name].deactivate()
    yield
    blockbuster.deactivate()


@pytest.fixture(scope="session", autouse=True)
def _session_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Name the session, and check at its end for leftovers of module fixtures."""
    name_session(tmp_path_factory.getbasetemp())
    before = Resources.now()
    yield tmp_path_factory.mktemp("outside")
    fail_on_leaks(before)


@pytest.fixture(scope="session", autouse=True)
def _keep_bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let programs share bytecode even if it cannot be written to the sources.

    Container images often forbid that, so each of a thousand programs would compile the package
    again.
    """
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent  # all processes of the run share it
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(directory / "bytecode"))
        yield


@attrs.frozen
class Directories:
    """The empty home, temporary and working directory of a test."""

    home: Path
    temporary: Path
    working: Path
    mode: int

    @classmethod
    def make(cls, root: Path) -> Directories:
        paths = [root / name for name in ("home", "tmp", "cwd")]
        for path in paths:
            path.mkdir()
        return cls(*paths, mode=paths[0].stat().st_mode)

    @property
    def are_untouched(self) -> bool:
        with contextlib.suppress(OSError):
            return all(
                path.stat().st_mode == self.mode and not os.listdir(path)
                for path in (self.home, self.temporary, self.working)
            )
        return False


_untouched: list[Directories] = []
"""Unchanged directories of earlier tests; creating and removing them costs 3 ms per test."""


@pytest.fixture(autouse=True)
def _leave_nothing_behind(_session_directory: Path) -> Iterator[None]:
    """Give the test an empty home, temporary and working directory; compare before and after."""
    if _untouched:
        directories = _untouched.pop()
    else:
        directories = Directories.make(Path(tempfile.mkdtemp(dir=_session_directory)))
    temporary, working = directories.temporary, directories.working
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAWBLOX_HOME", str(directories.home))
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", str(temporary))
        patch.chdir(working)
        before = Resources.now(temporary, working)
        yield
        structlog.reset_defaults()  # configured by a command that ran in this process
        fail_on_leaks(before, temporary, working)
    with contextlib.suppress(OSError):
        (directories.home / "runs.jsonl").unlink()  # every start writes to the index
    if directories.are_untouched:
        _untouched.append(directories)


def fail_on_leaks(before: Resources, *directories: Path) -> None:
    """Fail if anything new since ``before`` stays; kill leaked processes."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while (now := Resources.now(*directories)).leaks_since(before):
        if time.monotonic() > deadline:
            break
        gc.collect()
        time.sleep(POLL_INTERVAL_S)
        look_again()
    if leaks := now.leaks_since(before):
        kill_processes(lambda: now.processes_since(before).keys() & live_processes())
        pytest.fail("left behind:\n" + "\n".join(f"  {leak}" for leak in leaks))


@pytest.fixture(scope="session")
def template() -> Iterator[Template]:
    """Run the process that is forked for each command."""
    with running_template("cli", "world", "checkpoint", "agents", "experiment") as template:
        yield template


@pytest.fixture
def tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tmux]:
    """Provide a private tmux server; return the function that runs its commands."""
    require_program("tmux")
    with tmux_server(tmp_path / "home", monkeypatch) as run:
        yield run


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Provide the real agent programs, which are installed when a test requests one."""
    found = Programs.make(tmp_path_factory.mktemp("programs"))
    yield found
    found.remove()


@pytest.fixture
def api() -> Iterator[ModelApi]:
    """Provide a stand-in for the APIs of the models."""
    with model_api() as stand_in:
        yield stand_in
