"""The pytest plugin: ``pytest --clawblox-world DIR`` runs the checks of a world as tests.

Each check is a test, such as ``clawblox::restore.trace``. All selected checks run together when the
first of these tests runs, once in a session; each test then reports the result of its check. A
requirement that is not met is a failure, a recommendation that is not met is a
:class:`CheckWarning`, and a check that could not run is skipped with its reason.

pytest imports this module at every start, so the checks are imported only if a world is given.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from clawblox.conformance.registry import Check
    from clawblox.conformance.report import CheckResult, Report

_VALUE_CHARS: Final = 2000
_SHARED: Final = "clawblox_shared_dir"
"""Key of pytest-xdist's ``workerinput`` for the directory that its processes share."""
_PATIENCE_S: Final = 3600.0
"""Maximum wait for the checks in another process, in seconds."""
_directory: Final = pytest.StashKey[Path]()


class CheckWarning(UserWarning):
    """A world does not follow a recommendation."""


class CheckFailedError(Exception):
    """A world does not meet a requirement, or a check itself failed; the text is the report."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("clawblox", "checks of worlds")
    group.addoption(
        "--clawblox-world",
        action="append",
        default=[],
        metavar="DIR",
        help="check this world, the directory or the address of one; can be repeated",
    )
    group.addoption(
        "--clawblox-check",
        action="append",
        default=[],
        metavar="ID",
        help="run this check, or the checks of this area, only; can be repeated",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401 - of pytest-xdist
    """Give each process of pytest-xdist the directory for sharing reports."""
    config: pytest.Config = node.config
    if not config.getoption("--clawblox-world"):
        return
    if _directory not in config.stash:
        config.stash[_directory] = Path(tempfile.mkdtemp(prefix="clawblox-pytest-"))
    node.workerinput[_SHARED] = str(config.stash[_directory])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the directory for sharing reports."""
    if _directory in config.stash:
        from clawblox.system.trees import discard_tree

        discard_tree(config.stash[_directory])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the checks of the given worlds to the tests.

    Raises:
        pytest.UsageError: No check matches a name.
    """
    targets = list(dict.fromkeys(config.getoption("--clawblox-world")))
    if not targets:
        return
    from clawblox.conformance.checks import CHECKS
    from clawblox.conformance.registry import select_checks
    from clawblox.errors import UsageError

    try:
        checks = select_checks(CHECKS, config.getoption("--clawblox-check"))
    except UsageError as error:
        raise pytest.UsageError(f"--clawblox-check: {error}") from error
    shared = getattr(config, "workerinput", {}).get(_SHARED)
    for number, target in enumerate(targets):
        run = _Run(session, target, None if shared is None else Path(shared, f"{number}.json"))
        prefix = "clawblox" if len(targets) == 1 else f"clawblox::{target}"
        for check in checks:
            nodeid = f"{prefix}::{check.id}"
            items.append(
                CheckItem.from_parent(session, name=check.id, nodeid=nodeid, run=run, check=check)
            )


class _Run:
    """The checks of a world, which run together when the first result is requested.

    Args:
        session: The session, which selects the checks to run.
        target: The directory or the address of the world.
        file: File in which the processes of pytest-xdist share the report; None in a single
            process.

    Attributes:
        target: The same as the argument.
    """

    def __init__(self, session: pytest.Session, target: str, file: Path | None) -> None:
        self._session = session
        self._file = file
        self.target = target
        self._report: Report | None = None
        self._error: Exception | None = None

    def report(self) -> Report:
        """Return the report of the world.

        Raises:
            ClawbloxError: The target is not a world.
        """
        from clawblox.errors import ClawbloxError

        if self._error is not None:
            raise self._error
        if self._report is None:
            try:
                self._report = self._check() if self._file is None else self._share(self._file)
            except ClawbloxError as error:
                self._error = error
                raise
        return self._report

    def _share(self, file: Path) -> Report:
        """Return the report, made by the first process; other processes wait for it."""
        import json

        from clawblox.conformance.report import parse_report
        from clawblox.system.files import publish_bytes
        from clawblox.system.locks import lock_descriptor

        with file.with_suffix(".lock").open("w") as lock:
            lock_descriptor(lock.fileno(), _PATIENCE_S)
            if file.exists():
                return parse_report(json.loads(file.read_bytes()), target=self.target)
            report = self._check()
            publish_bytes(file, json.dumps(report.document()).encode(), durable=False)
            return report

    def _check(self) -> Report:
        from functools import partial

        import anyio

        from clawblox.conformance.runner import check_world

        tests = (item for item in self._session.items if isinstance(item, CheckItem))
        names = [item.check.id for item in tests if item.run is self]
        return anyio.run(partial(check_world, self.target, names))


class CheckItem(pytest.Item):
    """One check of a world as a test.

    Attributes:
        run: The checks of the world.
        check: The check.
    """

    def __init__(self, *, run: _Run, check: Check, **fields: Any) -> None:
        super().__init__(**fields)
        self.run = run
        self.check = check

    def runtest(self) -> None:
        """Report the result of the check.

        Raises:
            CheckFailedError: The world does not meet the requirement, or the check itself failed.
            ClawbloxError: The target is not a world.
        """
        from clawblox.printable import printable_lines

        report = self.run.report()
        result = next(result for result in report.checks if result.id == self.check.id)
        if result.is_own_error:
            raise CheckFailedError(printable_lines(result.evidence))
        if result.status in ("could_not_run", "not_applicable"):
            pytest.skip(printable_lines(f"{result.status.replace('_', ' ')}: {result.evidence}"))
        if result.status == "failed":
            text = _describe(report, result)
            if result.level == "must":
                raise CheckFailedError(text)
            self.warn(CheckWarning(f"{result.id}: {text}"))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ANN401 - pytest's own
        """Return the text of an error of the check; pytest shows other errors."""
        from clawblox.errors import ClawbloxError

        if isinstance(excinfo.value, CheckFailedError | ClawbloxError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the origin of the test, with the headline for a failure."""
        return self.path, 0, f"{self.check.id} of {self.run.target}"


def _describe(report: Report, result: CheckResult) -> str:
    from clawblox.conformance.failure_text import describe_failure
    from clawblox.printable import printable_lines

    facts = describe_failure(report, result, width=_VALUE_CHARS)
    others = (f"{fact.label}: {fact.text}" for fact in facts if fact.label != "seen")
    return printable_lines("\n".join((result.evidence, *others)))
