"""``clawblox doctor``: each check reports present and missing dependencies."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clawblox.agents.programs import PROGRAMS
from clawblox.checks import MachineCheck, MachineCheckResult, missing, ok, run_checks, warning
from clawblox.cli.commands.doctor import ALL_CHECKS, as_table, missing_requirements
from clawblox.cli.doctor import agents, machine, resources, software
from clawblox.cli.doctor.resources import look_at_range
from clawblox.cli.doctor.software import look_for_packages
from clawblox.extras import EXTRAS, install_command
from clawblox.system import port_leases
from clawblox.system.process_tree import read_variables
from tests.cli.conftest import Command, Start
from tests.rundir.support import make_record
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "cli.md").read_text()
AGENT_PROGRAMS = ("claude", "codex", "gemini", "kimi", "opencode", "qwen")
STATE_VARIABLES = {
    "claude": ("CLAUDE_CONFIG_DIR",),
    "codex": ("CODEX_HOME",),
    "gemini": ("GEMINI_CLI_HOME",),
    "kimi": ("KIMI_CODE_HOME",),
    "opencode": ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
    "qwen": ("QWEN_HOME",),
}
"""Variables that set the state directories of agents' programs."""
MISSING, WARNING = "missing", "warning"


def can_unshare() -> bool:
    command = ["unshare", "-rmn", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


needs_namespaces = pytest.mark.skipif("not can_unshare()")


def results(command: Command) -> dict[str, dict[str, Any]]:
    """Return the results of a ``doctor --json`` by group and name."""
    return {f"{one['group']}/{one['name']}": one for one in json.loads(command.out)}


def states(command: Command) -> dict[str, str]:
    return {name: one["state"] for name, one in results(command).items()}


def look(name: str) -> MachineCheckResult:
    """Run one check."""
    return next(check.run() for check in ALL_CHECKS if f"{check.group}/{check.id}" == name)


def fake_program(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def offer_only(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restrict PATH to the programs of a directory, and unset all keys."""
    monkeypatch.setenv("PATH", str(directory))
    for program in PROGRAMS.values():
        for name in program.credential_variables:
            monkeypatch.delenv(name, raising=False)


# -- the command ------------------------------------------------------------------------------


def test_this_machine_meets_all_requirements(call: Start) -> None:
    command = call("doctor", "--json")
    found = results(command)
    assert command.wait() == 0
    assert [name for name, one in found.items() if one["is_required"]] != []
    for name, one in found.items():
        assert one["state"] == "ok" or not one["is_required"] or one["state"] == WARNING, name
        assert one["found"]


def test_the_table_fits_80_columns_and_shows_remedies(call: Start, tmp_path: Path) -> None:
    command = call("doctor", env={"PATH": str(tmp_path)})
    assert command.wait() == 0
    assert max(map(len, command.out.splitlines())) <= 80
    text = " ".join(command.out.split())
    assert "- missing tmux not installed clawblox run --tmux does not work. Install it: apt" in text
    assert "✓ ok pidfds Linux" in text
    assert command.out.splitlines()[-1].endswith("All requirements of clawblox are met.")


@pytest.mark.thorough
def test_the_path_in_a_command_to_paste_is_never_broken() -> None:
    (check,) = (one for one in ALL_CHECKS if one.id == "left behind")
    command = f"clawblox stop /{'x' * 100}/home/stranger/program"
    table = as_table([(check, warning(f"pid 7: {command}"))], is_coloured=False)
    assert any(line.endswith(command.split()[-1]) for line in table.splitlines())


@pytest.mark.thorough
def test_the_table_can_be_written_in_ascii(call: Start) -> None:
    env = {"PYTHONIOENCODING": "ascii"}
    assert "? ok       pidfds" in call("doctor", env=env, prefix=("env",)).out


@pytest.mark.thorough
@needs_namespaces
def test_a_machine_without_a_process_table_misses_a_requirement(
    call: Start, tmp_path: Path
) -> None:
    script = 'mount -t tmpfs -o size=4M none "$0" && mount -t tmpfs none /proc && exec "$@"'
    prefix = ("unshare", "-rm", "sh", "-c", script, str(tmp_path))
    command = call("doctor", "--json", prefix=prefix, cwd="/", env={"PYTHONPATH": str(ROOT)})
    assert command.wait() == 1
    found = states(command)
    assert found["Kernel/process table"] == MISSING


@needs_namespaces
@pytest.mark.thorough
def test_full_disk_is_reported_as_missing_space(call: Start, tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=4M none "$0" && cd "$0" && exec "$@"'
    prefix = ("unshare", "-rm", "sh", "-c", script, str(tmp_path))
    command = call("doctor", "--json", prefix=prefix, env={"PYTHONPATH": str(ROOT)})
    assert command.wait() == 1
    found = results(command)["Current directory/space"]
    assert found["state"] == MISSING
    assert found["found"].startswith("4.2 MB free")


@needs_namespaces
@pytest.mark.thorough
def test_a_disk_without_room_for_files_is_reported(call: Start, tmp_path: Path) -> None:
    fill = "touch full 2>/dev/null"  # the directory itself uses an inode
    script = f'mount -t tmpfs -o nr_inodes=2 none "$0" && cd "$0" && {fill}; exec "$@"'
    prefix = ("unshare", "-rm", "sh", "-c", script, str(tmp_path))
    command = call("doctor", "--json", prefix=prefix, env={"PYTHONPATH": str(ROOT)})
    found = results(command)["Current directory/space"]
    assert (found["state"], command.wait()) == (MISSING, 1)
    assert "No space left on device" in found["found"] or "no file can be" in found["found"]


@pytest.mark.thorough
@needs_namespaces
def test_unwritable_directory_fails_all_its_checks(call: Start, tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o ro none "$0" && cd "$0" && exec "$@"'
    prefix = ("unshare", "-rm", "sh", "-c", script, str(tmp_path))
    command = call("doctor", "--json", prefix=prefix, env={"PYTHONPATH": str(ROOT)})
    assert command.wait() == 1
    here = {one["name"]: one["state"] for one in results(command).values()
            if one["group"] == "Current directory"}  # fmt: skip
    assert here.pop("file system") == WARNING
    assert set(here.values()) == {MISSING}
    assert len(here) == 5


@needs_namespaces
@pytest.mark.thorough
def test_forbidden_namespaces_are_reported_as_missing(call: Start) -> None:
    script = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    prefix = ("unshare", "-Ur", "sh", "-c", script, "sh")
    command = call("doctor", "--json", prefix=prefix)
    found = results(command)["Sandboxes/namespaces"]
    assert found["state"] == MISSING
    assert found["found"].endswith(os.strerror(errno.ENOSPC))
    assert command.wait() == 0  # only a sandbox needs them


@pytest.mark.thorough
def test_low_limit_of_open_files_is_a_warning_and_very_low_an_error(
    call: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _limit: (100, 100))
    found = look("Limits/open files")
    assert found.status == WARNING
    assert found.text.startswith("limit 100, enough for about 17 ")
    command = call("doctor", "--json", prefix=("prlimit", "--nofile=34"))
    assert states(command)["Limits/open files"] == MISSING
    assert command.wait() == 1


# -- single checks ----------------------------------------------------------------------------


def test_an_agents_program_is_shown_with_its_version_and_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_only(tmp_path, monkeypatch)
    fake_program(tmp_path, "claude", "echo '2.1.330 (Claude Code)'")
    found = look("Agents/claude")
    assert found.status == WARNING
    assert found.text.startswith("2.1.330; it may not be logged in: none of ANTHROPIC_API_KEY")
    assert found.remedy is not None
    assert found.remedy.startswith("To do: set ANTHROPIC_API_KEY, or ")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    assert look("Agents/claude") == ok("2.1.330; ANTHROPIC_API_KEY set")
    fake_program(tmp_path, "gemini", "echo 0.61.0")
    assert look("Agents/gemini") == ok("0.61.0; its keys are given with env=")
    monkeypatch.undo()
    offer_only(tmp_path, monkeypatch)
    fake_program(tmp_path, "opencode", "echo 1.18.33")
    assert look("Agents/opencode").text.startswith("1.18.33; none of ANTHROPIC_API_KEY, ")


def test_the_remedy_for_an_old_program_is_the_command_that_updates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_only(tmp_path, monkeypatch)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    fake_program(tmp_path, "codex", "echo codex-cli 0.100.3")
    assert look("Agents/codex") == warning(
        "version codex-cli 0.100.3 is too old; 0.128 is needed",
        remedy="To do: npm install -g @openai/codex@latest.",
    )


def test_missing_agent_programs_do_not_fail_the_doctor(call: Start, tmp_path: Path) -> None:
    command = call("doctor", "--json", env={"PATH": str(tmp_path)})
    assert command.wait() == 0
    agents = [one for one in results(command).values() if one["group"] == "Agents"]
    assert {one["name"] for one in agents} == {*AGENT_PROGRAMS}
    for one in agents:
        assert (one["state"], one["found"]) == (MISSING, "not installed")
        assert one["remedy"].startswith("Install it: npm install -g ")


def test_an_agents_program_that_cannot_run_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_only(tmp_path, monkeypatch)
    expected = warning("it printed 'Node.js v20.20.2', no version (exit status 1)")
    for name in AGENT_PROGRAMS:
        fake_program(tmp_path, name, "echo SyntaxError; echo Node.js v20.20.2; exit 1")
        assert look(f"Agents/{name}") == expected, name
    (tmp_path / "claude").write_text("#!/nowhere/node\n")
    assert look("Agents/claude").status == WARNING


@pytest.mark.parametrize("name", AGENT_PROGRAMS)
def test_agent_program_prints_its_version_in_an_agents_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The program gets a temporary home, and no key of another program."""
    home, scratch, programs = (tmp_path / name for name in ("own", "scratch", "programs"))
    for directory in (home, scratch, programs):
        directory.mkdir()
    offer_only(programs, monkeypatch)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    for secret in ("WORLD_OPERATOR_TOKEN", "CLAUDECODE", "UNKNOWN_KEY"):
        monkeypatch.setenv(secret, "canary")
    script = f'echo >"$HOME/.written"; /usr/bin/env >{tmp_path}/seen; echo 9.9.9'
    fake_program(programs, name, script)
    look(f"Agents/{name}")
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    assert Path(seen["HOME"]).is_relative_to(scratch)
    assert "canary" not in seen.values()
    for variable in STATE_VARIABLES.get(name, ()):
        assert Path(seen[variable]).is_relative_to(scratch)
    assert list(home.iterdir()) == []
    assert list(scratch.iterdir()) == []


def test_version_query_of_an_agent_program_leaves_no_files_or_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_only(tmp_path, monkeypatch)
    left_file = tmp_path / "left"
    daemon = f"/usr/bin/setsid /bin/sh -c 'echo $$ >{left_file}; exec /bin/sleep 60' &"
    wait = f"until [ -s {left_file} ]; do /bin/sleep 0.02; done"
    script = f"{daemon} {wait}; echo 9.9.9"
    fake_program(tmp_path, "qwen", script)
    assert look("Agents/qwen").text.startswith("9.9.9; ")
    left = left_file.read_text().strip()
    assert not Path("/proc", left, "exe").exists()  # a zombie has no environment


def test_hanging_agent_program_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_only(tmp_path, monkeypatch)
    monkeypatch.setattr(agents, "_TIMEOUT_S", 0.1)
    fake_program(tmp_path, "claude", "exec /bin/sleep 60")
    assert look("Agents/claude") == warning("it did not print its version within 0.1 s")


def test_agent_programs_are_queried_concurrently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each program waits until all programs are running."""
    offer_only(tmp_path, monkeypatch)
    started = tmp_path / "started"
    started.mkdir()
    count = len(AGENT_PROGRAMS)
    wait = f"until [ $(/bin/ls {started} | /usr/bin/wc -l) = {count} ]; do /bin/sleep 0.02; done"
    for name in AGENT_PROGRAMS:
        fake_program(tmp_path, name, f": >{started}/{name}; {wait}; echo 9.9.9")
    found = run_checks([check for check in agents.CHECKS if check.group == "Agents"], 30)
    assert [check.id for check, result in found if "9.9.9" not in result.text] == []
    assert len(found) == count


@needs_namespaces
def test_sandbox_that_cannot_run_is_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = 'case $1 in --version) echo bubblewrap 0.8.0;; *) echo "bwrap: no" >&2; exit 1;; esac'
    fake_program(tmp_path, "bwrap", refuses)
    offer_only(tmp_path, monkeypatch)
    found = look("Sandboxes/bubblewrap")
    assert (found.status, found.text) == (MISSING, "0.8.0: its sandbox cannot be created: no")
    assert found.remedy is not None
    assert found.remedy.startswith("In a container, allow it: ")
    fake_program(tmp_path, "bwrap", "echo bubblewrap 0.8.0")
    assert look("Sandboxes/bubblewrap") == ok("0.8.0, level bwrap")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        "clawblox.agents.sandbox.bubblewrap.find_obstacle", lambda _user: "root lacks CAP_KILL here"
    )
    found = look("Sandboxes/bubblewrap")
    assert found.status == WARNING
    assert found.text == "0.8.0, level bwrap-root: root lacks CAP_KILL here"
    (tmp_path / "bwrap").unlink()
    assert look("Sandboxes/bubblewrap") == missing("not installed")


@needs_namespaces
def test_native_sandbox_check_names_missing_programs_and_tries_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_only(tmp_path, monkeypatch)
    assert look("Sandboxes/native sandbox") == missing("not installed: bwrap, socat, rg")
    (tmp_path / "sh").symlink_to("/bin/sh")
    for name in ("socat", "rg"):
        fake_program(tmp_path, name, "exit 0")
    fake_program(tmp_path, "bwrap", 'echo "bwrap: no" >&2; exit 1')
    found = look("Sandboxes/native sandbox")
    assert found.status == MISSING
    assert found.text == "Claude Code's own sandbox cannot start: bwrap: no"
    fake_program(tmp_path, "bwrap", "exit 0")
    assert look("Sandboxes/native sandbox") == ok("bwrap, socat, rg")


def test_an_old_or_broken_tmux_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_program(tmp_path, "tmux", "echo tmux 2.9a")
    assert look("Programs/tmux") == warning("2.9a is too old: 3.0 or later is needed")
    fake_program(tmp_path, "tmux", "echo tmux 3.0")
    assert look("Programs/tmux") == ok("3.0")
    fake_program(tmp_path, "tmux", "exit 127")
    assert look("Programs/tmux") == missing("it failed with status 127")


def test_uninstalled_extra_is_reported_as_missing() -> None:
    assert look_for_packages(["pytest", "no-such-package"]) == missing("no no-such-package")
    assert look_for_packages(["pytest"]).text == f"pytest {pytest.__version__}"


def test_every_extra_is_checked_and_a_missing_extra_has_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = {check.id: check for check in ALL_CHECKS if check.group == "Extras"}
    assert checks.keys() == EXTRAS.keys()
    assert checks["server"].run().remedy is None
    monkeypatch.setattr(software, "EXTRAS", {"server": {"no_such": "no-such-package"}})
    absent = missing("no no-such-package", remedy=f"Install it: {install_command('server')}")
    assert checks["server"].run() == absent


def test_refused_pidfd_is_a_missing_requirement(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int) -> int:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert look("Kernel/pidfds") == missing("Operation not permitted")


def test_unavailable_port_leases_are_a_missing_requirement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_leases, "LEASE_ROOT", tmp_path / "file")
    (tmp_path / "file").touch()
    assert look("Kernel/port leases").status == MISSING


def test_wrong_clock_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "utc_now", lambda: datetime(2001, 1, 1, tzinfo=UTC))
    assert look("Clock/wall clock").text.endswith("before clawblox was installed")
    times = iter([datetime(2099, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, 0, 0, 9, tzinfo=UTC)])
    monkeypatch.setattr(machine, "utc_now", lambda: next(times))
    jumped = look("Clock/wall clock")
    assert jumped.status == WARNING
    assert re.fullmatch(r"it jumped by \+8\.\d+ s while it was watched", jumped.text)


def test_little_memory_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 2000000 kB\nMemAvailable: 100000 kB\n")
    monkeypatch.setattr(machine, "_MEMINFO", tmp_path / "meminfo")
    assert machine.look_at_memory() == warning("102 MB available of 2.0 GB")


def test_the_limits_of_every_control_group_above_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "pod" / "box"
    inner.mkdir(parents=True)
    for group, limit, used in ((inner, "max", 1), (inner.parent, "40", 30)):
        (group / "pids.max").write_text(f"{limit}\n")
        (group / "pids.current").write_text(f"{used}\n")
    (tmp_path / "own").write_text("4:memory:/old\n0::/pod/box\n")
    monkeypatch.setattr(machine, "_OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
    assert machine.look_at_processes() == warning("10 more can be started")
    (inner.parent / "pids.current").write_text("40\n")
    assert machine.look_at_processes() == missing("0 more can be started")


def test_a_file_system_without_a_feature_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "rename_with", lambda *_args: False)
    monkeypatch.setattr(resources.fcntl, "flock", lambda *_args: None)
    assert run_check(resources.look_for_exchange, tmp_path).status == MISSING
    assert run_check(resources.look_for_locks, tmp_path) == missing("flock locks nothing")
    monkeypatch.setattr(Path, "replace", lambda *_args: None)
    text = "rename replaces nothing"
    assert run_check(resources.look_for_replacing, tmp_path) == missing(text)
    assert [path.name for path in tmp_path.iterdir()] == ["cwd"]


def test_file_system_check_shows_the_type_and_the_lock_of_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "a b" / "c"
    shared.mkdir(parents=True)
    mounts = tmp_path / "mountinfo"
    name = str(shared.parent).replace(" ", "\\040")
    for kind, expected in {
        "nfs4": ok("nfs4: other machines wait for the lease of a driver"),
        "fuse.sshfs": ok("fuse.sshfs: other machines wait for the lease of a driver"),
        "ext4": ok("ext4: local"),
        "tmpfs": warning("tmpfs: its files are lost with the machine"),
    }.items():
        lines = ["21 1 0:1 / / rw - xfs a rw", f"22 21 0:2 / {name} rw shared:1 - {kind} b rw"]
        mounts.write_text("\n".join(lines))
        monkeypatch.setattr(resources, "_MOUNTS", mounts)
        assert resources.look_at_file_system(shared) == expected
        assert resources.look_at_file_system(tmp_path) == ok("xfs: local")


def test_file_system_that_recreates_existing_files_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_check(resources.look_for_replacing, tmp_path) == ok("rename, O_EXCL")
    monkeypatch.setattr(os, "O_EXCL", 0)
    text = "O_EXCL creates a file that exists"
    assert run_check(resources.look_for_replacing, tmp_path) == missing(text)


def test_another_directory_can_be_checked(call: Start, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    command = call("doctor", "--json", "--dir", str(place))
    command.wait()
    assert f"free in {place}" in results(command)["Current directory/space"]["found"]


def run_check(look_at: Any, directory: Path) -> MachineCheckResult:
    return MachineCheck("", "", lambda: look_at(directory), "", "").run()


def test_port_range_shared_with_outgoing_connections_is_a_warning() -> None:
    assert look_at_range(range(20, 30), range(30, 40)).status == "ok"
    shared = look_at_range(range(20, 30), range(25, 40))
    assert shared == warning("the kernel uses 25 to 39, 5 of ours")


def test_world_process_without_orchestrator_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = 2**22 + 1  # above the largest pid of Linux, since pids of ended processes are reused
    run_dir = tmp_path / "run"
    manifest = run_dir / ".clawblox" / "manifest.json"
    variables = {"CLAWBLOX_INSTANCE": "a", "CLAWBLOX_MANIFEST_PATH": str(manifest)}
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **variables}) as left:
        # Other tests leave processes behind for a moment.
        monkeypatch.setattr(resources, "all_processes", lambda: [left.pid])
        try:
            # A process has no environment during its exec.
            wait_until(lambda: read_variables(left.pid))
            make_record(run_dir, left.pid)
            assert look("Processes/left behind").text == "none"
            make_record(run_dir, left.pid, orchestrator_pid=gone, is_detached=True)
            assert look("Processes/left behind").text == "none"
            make_record(run_dir, left.pid, orchestrator_pid=gone)
            found = look("Processes/left behind")
        finally:
            left.kill()
    assert found == warning(f"pid {left.pid}: clawblox stop {run_dir}")


# -- running them -----------------------------------------------------------------------------


def check_named(name: str, look_at: Any, *, is_required: bool = False) -> MachineCheck:
    return MachineCheck("Group", name, look_at, "Costs.", "Do.", is_required=is_required)


def test_hanging_or_failing_check_does_not_affect_other_checks() -> None:
    hang = threading.Event()
    checks = [
        check_named("hangs", hang.wait),
        check_named("hangs too", hang.wait, is_required=True),
        check_named("breaks", lambda: 1 // 0),
        check_named("breaks too", lambda: 1 // 0, is_required=True),
        check_named("works", lambda: ok("yes")),
    ]
    try:
        found = [result for _, result in run_checks(checks, 0.2)]
    finally:
        hang.set()
    assert found == [
        warning("no answer within 0.2 s"),
        missing("no answer within 0.2 s"),
        warning("cannot be checked: ZeroDivisionError: integer division or modulo by zero"),
        missing("cannot be checked: ZeroDivisionError: integer division or modulo by zero"),
        ok("yes"),
    ]


def test_only_a_missing_requirement_makes_the_status_1() -> None:
    optional = check_named("optional", lambda: missing("no"))
    required = check_named("required", lambda: missing("no"), is_required=True)
    assert missing_requirements([(optional, optional.run())]) == []
    assert missing_requirements([(required, required.run())]) == [required.id]
    text = as_table([(required, required.run())], is_coloured=False)
    assert "✗ missing  required           no\n             Required: Costs." in text
    assert text.endswith("1 missing. clawblox cannot work without: required.")


def test_every_check_has_a_cost_and_a_remedy_and_is_in_the_guide() -> None:
    section = GUIDE.partition("\n## clawblox doctor\n")[2].partition("\n## ")[0]
    for check in ALL_CHECKS:
        assert check.without.endswith(".")
        assert check.remedy.endswith(".")
        assert f"`{check.id}`" in section
        assert f"| {check.group} |" in section
