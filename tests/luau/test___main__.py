"""``python -m clawblox.luau run``"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clawblox.luau.__main__ import ConformanceHost, main
from clawblox.luau.vm import VM


def run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "clawblox.luau", "run", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_run_prints_the_output_of_the_script(tmp_path: Path) -> None:
    path = tmp_path / "hello.luau"
    path.write_text("print('hällo', 1) coroutine.yield() print('never')")
    done = run(path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hällo\t1\n", "")


def test_an_error_is_shown_with_its_stack(tmp_path: Path) -> None:
    path = tmp_path / "bad.luau"
    path.write_text("local function f() error('why') end\nf()")
    done = run(path)
    assert done.returncode == 1
    assert done.stderr == "bad.luau:1: why\nbad.luau:1 function f\nbad.luau:2\n"


@pytest.mark.parametrize(
    ("source", "code"),
    [("print('x') return 1, 'OK'", 0), ("return 'no'", 1), ("", 1), ("error()", 1)],
)
def test_conformance_file_must_return_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, code: int
) -> None:
    path = tmp_path / "file.luau"
    path.write_text(source)
    assert main(["run", str(path), "--conformance"]) == code
    assert capsys.readouterr().out == ""


CONFORMANCE = """
local sum = 0
for value in cYieldingIterator, 0, 0 do error(value) end
local co = coroutine.wrap(function() for value in cYieldingIterator, 3, 0 do sum += value end end)
for i = 1, 3 do assert(co() == i) end
co()
assert(sum == 6)
local pointers = {[makelud(1)] = 1, [makelud(2)] = 2}
assert(pointers[makelud(1)] == 1 and makelud(1) ~= makelud(2))
local waiting = coroutine.create(function() return pcall(coroutine.yield) end)
coroutine.resume(waiting)
local ok, caught, message = resumeerror(waiting, "why")
assert(ok and not caught and message == "why")
assert(buffer.len(buffer.create(1e8)) == 1e8)
assert(not pcall(table.create, 1e6))
assert(select("#", assert(1, nil)) == 2)
assert(is_native_if_supported())
assert(not pcall(cxxthrow))
return "OK"
"""


@pytest.mark.thorough
@pytest.mark.parametrize("torture", [(), ("--torture", "1"), ("--torture", "3")])
def test_conformance_file_has_the_globals_of_the_test_program(
    tmp_path: Path, torture: tuple[str, ...]
) -> None:
    path = tmp_path / "file.luau"
    path.write_text(CONFORMANCE)
    assert main(["run", str(path), "--conformance", *torture]) == 0


def test_torture_option_continues_in_restored_vms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[VM] = []
    round_trip = ConformanceHost.round_trip

    def note(host: ConformanceHost, vm: VM) -> VM:
        saved.append(vm)
        return round_trip(host, vm)

    monkeypatch.setattr(ConformanceHost, "round_trip", note)
    path = tmp_path / "file.luau"
    path.write_text("for i = 1, 7 do assert(i) end return 'OK'")
    assert main(["run", str(path), "--conformance", "--torture", "2"]) == 0
    assert len({id(vm) for vm in saved}) == 3
