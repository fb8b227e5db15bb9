"""Programs in the sandbox: visible files, reachable addresses, and ends of processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import AgentSetupError
from clawblox.results import ProcessExit
from clawblox.supervision.tree import Grace, end_tree
from clawblox.system.process_tree import Mark, find_tree
from tests.agents.sandbox.support import (
    LABEL,
    PYTHON,
    TIMEOUT_S,
    Running,
    Sandbox,
    answering,
)
from tests.optional import require_program
from tests.support.processes import live_processes
from tests.support.waiting import wait_until_async
from tests.system.test_network_namespace import FORBID as FORBID_UNSHARE

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.anyio


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    require_program("bwrap")
    return Sandbox.open(tmp_path)


# ------------------------------------------------------------------------------ the network

REACH = """
import socket, sys, urllib.request
for url in sys.argv[1:]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            print("+", answer.read().decode())
    except OSError as error:
        print("-", getattr(error, "reason", error))
"""


async def test_only_the_world_answers(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as host, socket.socket() as anywhere:
        anywhere.bind(("0.0.0.0", 0))
        anywhere.listen()
        ports = [host.getsockname()[1], anywhere.getsockname()[1]]
        urls = [f"http://127.0.0.1:{port}/" for port in ports]
        outside = [*urls, "http://192.0.2.1/", "http://example.org/"]
        command = [*PYTHON, REACH, f"http://{LABEL}/api.md", *outside]
        async with sandbox.running(*command) as running:
            with answering(running.world, "the world") as seen:
                said = (await running.end()).splitlines()
    assert seen == ["GET /api.md HTTP/1.1"]
    assert said == [
        "+ the world",
        "- [Errno 111] Connection refused",
        "- [Errno 111] Connection refused",
        "- [Errno 101] Network is unreachable",
        said[4],
    ]
    assert "name resolution" in said[4]


@pytest.mark.thorough
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_model_on_this_machine_is_reached_under_its_own_address_only(
    sandbox: Sandbox, host: str
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as model,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        env = {"ANTHROPIC_BASE_URL": f"http://{host}:{model.getsockname()[1]}"}
        urls = [env["ANTHROPIC_BASE_URL"], f"http://{host}:{other.getsockname()[1]}"]
        async with sandbox.running(*PYTHON, REACH, *urls, env=env, serve=True) as running:
            with answering(model, "the model"):
                said = await running.end()
    assert said.splitlines() == ["+ the model", "- [Errno 111] Connection refused"]


async def test_a_base_url_that_leads_nowhere_is_refused_before_anything_starts(
    sandbox: Sandbox,
) -> None:
    env = {"ANTHROPIC_BASE_URL": "s3cret-model"}
    with pytest.raises(AgentSetupError, match="ANTHROPIC_BASE_URL must be an http") as caught:
        sandbox.bubblewrap.enclose((*PYTHON, ""), env, Path("/workspace"))
    assert "s3cret" not in str(caught.value)


# ----------------------------------------------------------------------------- visible files

LOOK = """
import json, os, pwd, socket
def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError as error:
        return error.strerror
pids = [name for name in os.listdir("/proc") if name.isdigit()]
status = dict(line.split(":\\t", 1) for line in read("/proc/self/status").splitlines())
def write(path):
    try:
        open(path, "w").close()
    except OSError as error:
        return error.strerror
    return "written"
print(json.dumps({
    "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getgroups()],
    "user": pwd.getpwuid(os.getuid())[0],
    "capabilities": [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "places": {place: sorted(os.listdir(place)) for place in ("/", "/home", "/etc", "/dev")},
    "cwd": os.getcwd(), "hostname": socket.gethostname(),
    "environ": {pid: read(f"/proc/{pid}/environ") for pid in pids},
    "cmdline": {pid: read(f"/proc/{pid}/cmdline") for pid in pids},
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "written": {place: write(f"{place}/made") for place in (
        "/workspace", "/home/agent", "/session", "/tmp", "/runtime", "/usr", "/etc", "/")},
    "path": os.environ["PATH"],
}))
"""

CANARY = "canary-7f3a"


async def look(sandbox: Sandbox, env: dict[str, str] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await sandbox.run(*PYTHON, LOOK, env=env))
    return found


async def test_a_program_sees_only_its_own_files(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_OPERATOR_TOKEN", CANARY)
    seen = await look(sandbox)
    assert seen["ids"] == [1000, 1000, 1000, seen["ids"][3]]
    assert set(seen["ids"][3]) <= {1000, 65534}
    assert seen["user"] == "agent"
    assert set(seen["capabilities"]) == {"0" * 16}
    assert (seen["cwd"], seen["hostname"]) == ("/workspace", "agent")
    assert set(seen["places"]["/"]) - {"root", "work", "opt", "home", "tmp"} == {
        *("bin", "dev", "etc", "lib", "lib64", "proc", "runtime", "sbin", "session", "usr"),
        "workspace",
    }
    assert "agent" in seen["places"]["/home"]
    assert not {"shadow", "ssh", "hostname", "machine-id"} & set(seen["places"]["/etc"])
    assert not {"mem", "kmsg", "vda", "sda"} & set(seen["places"]["/dev"])
    assert seen["descriptors"] == [0, 1, 2]
    assert set(seen["environ"]) == {"1", "2"}
    assert CANARY not in json.dumps(seen)
    places = [str(sandbox.directory.path), str(Path.home() / ".cache")]
    assert not [place for place in places if place in json.dumps(seen)]


async def test_files_that_it_writes_belong_to_the_user_of_this_machine(sandbox: Sandbox) -> None:
    seen = await look(sandbox)
    writable = {"/workspace", "/home/agent", "/session", "/tmp"}
    assert {place for place, said in seen["written"].items() if said == "written"} == writable
    directory = sandbox.directory
    for place in (directory.workspace, directory.home, directory.state):
        found = (place / "made").stat()
        assert (found.st_uid, found.st_gid) == (os.geteuid(), os.getegid())


WORK = """
git init -q . && git -c user.name=Eko -c user.email=eko@example.org commit -q --allow-empty -m one
mkdir shared && chmod 2775 shared && cp -a shared copy && stat -c %a copy && git log --format=%s
"""


@pytest.mark.needs("git")
async def test_git_accepts_a_repository_inside_and_outside(sandbox: Sandbox) -> None:
    # git refuses a repository of another user.
    env = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES": "/"}
    assert await sandbox.run("sh", "-ec", WORK, env=env) == "2775\none\n"
    log = ["git", "-C", str(sandbox.directory.workspace), "log", "--format=%s"]
    outside = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **env}
    found = await run_blocking(
        partial(subprocess.run, log, capture_output=True, text=True, env=outside, check=False)
    )
    assert (found.stdout, found.stderr) == ("one\n", "")


async def test_a_program_is_found_on_a_path_that_exists_inside(sandbox: Sandbox) -> None:
    seen = await look(
        sandbox, {"PATH": f"/nowhere/bin:{Path(sys.executable).parent}:/usr/bin:/bin"}
    )
    assert seen["path"].split(":")[:2] == [str(Path(sys.executable).parent), "/usr/bin"]
    assert "/nowhere/bin" not in seen["path"]


@pytest.mark.needs("bwrap")
async def test_a_program_may_be_named_by_the_short_name_of_its_directory(tmp_path: Path) -> None:
    opened = await run_blocking(partial(Sandbox.open, tmp_path, binary="/bin/echo"))
    assert await opened.run("/bin/echo", "seen") == "seen\n"


@pytest.mark.needs("bwrap")
async def test_dependencies_of_the_world_are_shown_at_their_documented_path(tmp_path: Path) -> None:
    deps = tmp_path / "deps"
    (deps / "lib").mkdir(parents=True)
    (deps / "lib" / "model.bin").write_text("weights")
    settings = {"deps_root": str(deps), "add_deps_lib_to_library_path": True}
    sandbox = await to_thread.run_sync(partial(Sandbox.open, tmp_path, settings=settings))
    said = await sandbox.run(
        "sh",
        "-c",
        'cd /sandbox-deps; cat lib/model.bin; echo " $LD_LIBRARY_PATH"; touch x 2>&1 || :',
        env={"LD_LIBRARY_PATH": "/workspace/lib"},
    )
    assert said.splitlines() == [
        "weights /sandbox-deps/lib:/workspace/lib",
        "touch: cannot touch 'x': Read-only file system",
    ]


async def test_the_directory_for_dependencies_is_missing_without_dependencies(
    sandbox: Sandbox,
) -> None:
    assert await sandbox.run("sh", "-c", "test -e /sandbox-deps || echo none") == "none\n"


@pytest.mark.needs("bwrap")
def test_dependencies_that_are_missing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        AgentSetupError, match=r"deps_root of its world must be a directory, not /nowhere"
    ):
        Sandbox.open(tmp_path, settings={"deps_root": "/nowhere"})


# ----------------------------------------------------------------------------------- its end

DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""

LEAVE = """
import os, signal, sys, time
daemon, token, then = sys.argv[1:]
for number in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", daemon, token], {})
        os._exit(0)
    os.wait()
exec(then)
"""

WAIT = "time.sleep(600)"
STUBBORN = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAIT}"
POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("bye", flush=True), sys.exit(7)))
print("ready", flush=True)
time.sleep(600)
"""


def with_token(token: str) -> list[int]:
    """Return the processes with a token in their arguments."""
    found = []
    for pid in live_processes():
        with suppress(OSError):
            if token in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                found.append(pid)
    return found


@asynccontextmanager
async def leaving(sandbox: Sandbox, then: str) -> AsyncIterator[tuple[Running, str]]:
    """Run a program that has left two processes in sessions of their own, without variables."""
    token = f"token-{uuid.uuid4()}"
    async with sandbox.running(*PYTHON, LEAVE, DAEMON, token, then) as running:
        await wait_until_async(lambda: running.output.count("ready") == 2, TIMEOUT_S)
        yield running, token


async def test_processes_in_sessions_of_their_own_end_with_the_program(sandbox: Sandbox) -> None:
    gate = "while not os.path.exists('/workspace/go'): time.sleep(0.01)"
    async with leaving(sandbox, gate) as (running, token):
        assert len(with_token(token)) == 5
        (sandbox.directory.workspace / "go").touch()
        await running.end()
        assert (await end_tree(running.mark, running.process, Grace(0))).survivors == ()
        assert with_token(token) == []


async def test_processes_in_a_sandbox_are_found_from_outside(sandbox: Sandbox) -> None:
    async with leaving(sandbox, WAIT) as (running, token):
        found, by_cookie = [
            {proc.pid for proc in await to_thread.run_sync(find_tree, [mark])}
            for mark in (running.mark, Mark(running.mark.cookie))
        ]
        assert found == by_cookie
        assert found >= {running.process.pid, *with_token(token)}


async def test_a_terminated_program_can_still_write_output(sandbox: Sandbox) -> None:
    async with sandbox.running(*PYTHON, POLITE) as running:
        await wait_until_async(lambda: running.output == "ready\n", TIMEOUT_S)
        end = await end_tree(running.mark, running.process, Grace(TIMEOUT_S))
        assert end.rung == "terminated"
        assert running.output == "ready\nbye\n"


async def test_a_program_that_ignores_term_is_killed_with_all_its_processes(
    sandbox: Sandbox,
) -> None:
    async with leaving(sandbox, STUBBORN) as (running, token):
        end = await end_tree(running.mark, running.process, Grace(0))
        assert (end.rung, end.survivors) == ("killed", ())
        assert with_token(token) == []


async def test_no_process_remains_after_the_leader_was_killed_first(sandbox: Sandbox) -> None:
    async with leaving(sandbox, STUBBORN) as (running, token):
        os.kill(running.process.pid, signal.SIGKILL)
        assert await running.process.wait() == ProcessExit(signal="SIGKILL")
        assert (await end_tree(running.mark, running.process, Grace(0))).survivors == ()
        assert with_token(token) == []


async def test_the_exit_status_comes_from_the_program(sandbox: Sandbox) -> None:
    async with sandbox.running("sh", "-c", "exit 7") as running:
        assert await running.process.wait() == ProcessExit(status=7)


# ---------------------------------------------------------------------------------- refusals


def test_a_machine_without_bubblewrap_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgentSetupError, match="bwrap is not on PATH") as caught:
        Sandbox.open(tmp_path)
    assert "apt install bubblewrap" in str(caught.value)


def test_errors_of_bubblewrap_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = tmp_path / "bin" / "bwrap"
    refusing.parent.mkdir()
    refusing.write_text(
        "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n"
    )
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{refusing.parent}:{os.environ['PATH']}")
    expected = "its sandbox cannot be created: setting up uid map: Permission denied"
    with pytest.raises(AgentSetupError, match=expected):
        Sandbox.open(tmp_path)


@pytest.mark.thorough
@pytest.mark.needs("bwrap")
def test_a_machine_that_forbids_namespaces_is_refused_with_the_kernels_error(
    tmp_path: Path,
) -> None:
    code = f"""
import sys; sys.path[:0] = {[str(ROOT), *sys.path]!r}
from pathlib import Path
from tests.agents.sandbox.support import Sandbox
try:
    Sandbox.open(Path({str(tmp_path)!r}))
except Exception as error:
    print(type(error).__name__, error)
"""
    command = [*PYTHON, FORBID_UNSHARE, *PYTHON, code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    said, _, hint = result.stdout.partition("\n")
    assert said == (
        "AgentSetupError it cannot be isolated on this machine: "
        "unshare(CLONE_NEWUSER | CLONE_NEWNET): Operation not permitted"
    ), result.stderr
    assert "user.max_user_namespaces" in hint


# ------------------------------------------------------------------------ who is not root

AS_ANOTHER_USER = """
import json, os, sys; sys.path[:0] = json.loads(sys.argv[1])
from pathlib import Path
import anyio, anyio.to_thread
from tests.agents.sandbox.support import Sandbox, answering
from tests.agents.sandbox.test_bubblewrap import LABEL, LOOK, POLITE, PYTHON, REACH
from tests.support.waiting import wait_until_async
from clawblox.supervision.tree import Grace, end_tree
from clawblox.system.process_tree import Mark, find_tree

async def main():
    sandbox = Sandbox.open(Path(sys.argv[2]))
    seen = json.loads(await sandbox.run(*PYTHON, LOOK))
    async with sandbox.running(*PYTHON, REACH, f"http://{LABEL}/") as running:
        with answering(running.world, "the world"):
            said = await running.end()
    async with sandbox.running(*PYTHON, POLITE) as running:
        await wait_until_async(lambda: running.output, 30)
        mark = Mark(running.mark.cookie)
        found = len(await anyio.to_thread.run_sync(find_tree, [mark]))
        end = await end_tree(running.mark, running.process, Grace(20))
    made = (sandbox.directory.workspace / "made").stat()
    print(json.dumps([os.getuid(), seen["ids"], seen["capabilities"], said, found, end.rung,
        made.st_uid]))

anyio.run(main)
"""


@pytest.mark.thorough
@pytest.mark.needs("bwrap")
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_user_who_is_not_root_has_the_same_sandbox() -> None:
    uid = 65534
    with tempfile.TemporaryDirectory(
        dir="/tmp"
    ) as directory:  # a directory that the user can enter
        os.chown(directory, uid, uid)
        check_as(uid, Path(directory))


def check_as(uid: int, own: Path) -> None:
    become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    paths = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    imports = f"import sys; sys.path[:0] = {paths!r}; import anyio, attrs, tests, msgspec"
    system_python = ["/usr/bin/python3", "-I", "-c"]
    may = subprocess.run(
        [*become, *system_python, f"{imports}; open({str(own / 'may')!r}, 'w')"],
        capture_output=True,
        check=False,
        cwd="/",
    )
    if may.returncode:
        pytest.skip("another user may not read this checkout, or its Python is another")
    result = subprocess.run(
        [*become, *system_python, AS_ANOTHER_USER, json.dumps(paths), str(own)],
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_S,
        check=False,
        cwd="/",
    )
    assert result.returncode == 0, result.stderr
    user, ids, capabilities, said, found, rung, owner = json.loads(result.stdout)
    assert (user, owner) == (uid, uid)
    assert ids[:3] == [1000, 1000, 1000]
    assert set(capabilities) == {"0" * 16}
    assert (said, found, rung) == ("+ the world\n", 3, "terminated")
