"""The library's own log reaches structlog, which is loaded at the first line."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest
import structlog

from clawblox.telemetry.own_log import OwnLog
from tests.support.waiting import HANG_S


def test_a_line_reaches_structlog_with_its_fields() -> None:
    with structlog.testing.capture_logs() as captured:
        OwnLog(__name__).warning("log not cut", path="/x")
    assert captured == [{"event": "log not cut", "path": "/x", "log_level": "warning"}]


def test_a_later_configuration_of_the_application_takes_effect() -> None:
    log, lines = OwnLog(__name__), []
    before = structlog.get_config()
    try:
        structlog.configure(
            processors=[lambda _, method, entry: lines.append(method) or str(entry)]
        )
        log.info("once")
    finally:
        structlog.configure(**before)
    assert lines == ["info"]


def test_structlog_is_loaded_at_the_first_line() -> None:
    code = (
        "import sys; from clawblox.telemetry.own_log import OwnLog; log = OwnLog('x')\n"
        "assert 'structlog' not in sys.modules\n"
        "log.warning('now')\n"
        "assert 'structlog' in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=HANG_S, stdout=subprocess.DEVNULL
    )


EXHAUSTED = """
import resource
from clawblox.telemetry.own_log import OwnLog

limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
OwnLog("x").warning("dropped", path="/x")
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
OwnLog("x").warning("written")
"""


def test_a_line_is_dropped_without_an_error_if_no_descriptor_is_free() -> None:
    words = [sys.executable, "-c", EXHAUSTED]
    result = subprocess.run(words, check=True, timeout=HANG_S, capture_output=True, text=True)
    assert "written" in result.stderr
    assert "dropped" not in result.stderr
    assert result.stdout == ""


UNCONFIGURED = r"""
import sys
from clawblox.telemetry.own_log import OwnLog

log = OwnLog("x")
for method in (log.debug, log.info, log.warning, log.error):
    method("from the library", reason="two\nlines \x1b]0;title\x07")
"""


def test_unconfigured_lines_go_to_standard_error_in_readable_form() -> None:
    words = [sys.executable, "-c", UNCONFIGURED]
    result = subprocess.run(words, check=True, timeout=HANG_S, capture_output=True, text=True)
    assert result.stdout == ""
    assert result.stderr.count("from the library") == 4
    shown = result.stderr.replace("\\\\", "\\")  # structlog quotes values with spaces
    assert shown.count(r"two\nlines \x1b]0;title\x07") == 4
    assert not {"\x1b", "\x07"} & set(result.stderr)


DEFECT = """
from clawblox.telemetry.own_log import OwnLog

def fail(token):
    raise ValueError("no such key")

log = OwnLog("x")
with log.contain("request failed"):
    fail("tok" + "en-of-a-world")
"""


def test_a_defect_names_its_frames_and_shows_none_of_their_variables() -> None:
    words = [sys.executable, "-c", DEFECT]
    result = subprocess.run(words, check=True, timeout=HANG_S, capture_output=True, text=True)
    assert "ValueError('no such key')" in result.stderr
    assert "<string>:5 fail" in result.stderr
    assert "token-of-a-world" not in result.stderr


def test_a_line_is_dropped_while_another_thread_fails_to_load_structlog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # That thread leaves other threads a module without its names.
    monkeypatch.setitem(sys.modules, "structlog", ModuleType("structlog"))
    OwnLog("x").warning("dropped")
