"""Attacks from inside the sandbox, as root, as root with fewer capabilities, and as a user."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.sandbox.support import TIMEOUT_S

ROOT = Path(__file__).parents[3]
USER = 65534

ATTACK = r"""
import ctypes, errno, json, os, socket, stat, sys
lib = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
NAMESPACES = {"cgroup": 0x02000000, "ipc": 0x08000000, "mnt": 0x20000, "net": 0x40000000,
              "pid": 0x20000000, "time": 0x80, "user": 0x10000000, "uts": 0x04000000}
CALLS = {"keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
         "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425),
         "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "clone3": (435, 435)}

def said(result):
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]

def attempt(function, *args):
    try:
        function(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

def in_child(function, *args):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, json.dumps(function(*args)).encode())
        os._exit(0)
    os.close(writer)
    os.wait()
    with os.fdopen(reader) as answer:
        return json.load(answer)

def write(path):
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))

def make(path):
    name = f"{path}/.attack"
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC))
    os.unlink(name)

def writable():
    files, places = [], []
    for path, directories, names in os.walk("/"):
        parts = path.split("/")
        if parts[1] == "proc" and len(parts) > 2 and (parts[2].isdigit() or "self" in parts[2]):
            directories.clear()
            continue
        if attempt(make, path) == "done":
            places.append(path)
        is_read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        if is_read_only and parts[1] != "proc" and path != "/" and "all" not in sys.argv:
            del names[9:], directories[9:]  # the kernel answers for all of a mount
        for name in names:
            whole = os.path.join(path, name)
            is_device = "/dev/" in (whole[:5], os.path.realpath(whole)[:5])
            if not is_device and attempt(write, whole) == "done":
                files.append(whole)
    return files, places

def nested():
    # A user namespace of its own, and attacks as root in it.
    made = said(lib.unshare(NAMESPACES["user"] | NAMESPACES["mnt"] | NAMESPACES["pid"]))
    if made != "done":
        return made
    for name, text in (("setgroups", "deny"), ("uid_map", "0 1000 1"), ("gid_map", "0 1000 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    return in_child(as_nested_root)  # the first process of its new process namespace

def as_nested_root():
    os.mkdir("/tmp/place")
    found = {}
    for kind in ("cgroup2", "cgroup", "proc", "sysfs", "debugfs", "devtmpfs", "securityfs"):
        found[kind] = said(lib.mount(b"none", b"/tmp/place", kind.encode(), 0, None))
    open("/workspace/program", "w").close()
    found["capability of a file"] = attempt(
        os.setxattr, "/workspace/program", "security.capability",
        bytes.fromhex("0100000220000000000000000000000000000000"))
    found["core_pattern"] = attempt(write, "/proc/sys/kernel/core_pattern")
    found["cgroup namespace"] = said(lib.unshare(NAMESPACES["cgroup"]))
    return found

def unshare(flags):
    return said(lib.unshare(flags))

def clone(flags):
    # clone(2) itself, which has other flags in front: a child that it makes ends at once.
    pid = lib.syscall((56, 220)[number], flags | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    answer = said(pid)
    if pid > 0:
        os.waitpid(pid, 0)
    return answer

def capabilities():
    with open("/proc/self/status") as status:
        sets = [line.split()[1] for line in status if line.startswith("Cap")]
    taken = []
    for capability in range(41):
        if lib.prctl(47, 2, capability, 0, 0) == 0:
            taken.append(capability)
    return sets, taken

def open_socket(family):
    socket.socket(family, socket.SOCK_DGRAM if family != 40 else socket.SOCK_STREAM).close()

def set_id(mode):
    open("/workspace/set-id", "w").close()
    os.chmod("/workspace/set-id", mode)

files, places = writable()
print(json.dumps({
    "files": files, "places": places,
    "unshare": {name: in_child(unshare, flag) for name, flag in NAMESPACES.items()},
    "unshare as root": {
        name: in_child(unshare, flag | NAMESPACES["user"]) for name, flag in NAMESPACES.items()},
    "clone": {name: in_child(clone, flag | NAMESPACES["user"])
              for name, flag in NAMESPACES.items() if name != "time"},
    "calls": {name: said(lib.syscall(numbers[number], 0, 0, 0, 0, 0))
              for name, numbers in CALLS.items()},
    "capabilities": capabilities(),
    "sockets": {family: attempt(open_socket, family) for family in (1, 2, 10, 16, 17, 31, 38, 40)},
    "set-id": [attempt(set_id, mode) for mode in (0o4755, 0o2755, 0o755)],
    "nested": in_child(nested),
    "streams": [attempt(write, f"/dev/{name}") for name in ("stdout", "stderr")],
}))
"""

RUN = """
import json, sys; sys.path[:0] = json.loads(sys.argv[1])
from pathlib import Path
import anyio
from tests.agents.sandbox import support
from tests.agents.sandbox.support import PYTHON, Sandbox

support.TIMEOUT_S = float(sys.argv[6])

async def main():
    sandbox = Sandbox.open(Path(sys.argv[2]), has_native=sys.argv[3] == "native")
    found = json.loads(await sandbox.run(*PYTHON, sys.argv[4], sys.argv[5]))
    made = (sandbox.directory.workspace / "set-id").stat()
    print(json.dumps([dict(sandbox.bubblewrap.facts), found, [made.st_uid, made.st_mode & 0o7777]]))

anyio.run(main)
"""

# Like a container that may mount, and whose /proc is partially covered.
COVER = """
mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys
mount --bind /dev/null /proc/timer_list
exec "$@"
"""

BECOME = {
    "root": (),
    "root in a container": ("unshare", "-m", "sh", "-c", COVER, "sh"),
    "root with less": ("setpriv", "--bounding-set=-sys_admin"),
    "a user": ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"),
}


@pytest.fixture
def own() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(
        dir="/tmp"
    ) as directory:  # a directory that any user can enter
        yield Path(directory)


def attack(
    who: str, level: str, own: Path, how: str
) -> tuple[dict[str, Any], dict[str, Any], list[int]]:
    """Return the facts of a sandbox, the results of its attacks, and their effects on disk."""
    paths = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    python = [sys.executable, "-I"]
    if who == "a user" and os.geteuid() == 0:
        os.chown(own, USER, USER)
        python = ["/usr/bin/python3", "-I"]
        imports = f"import sys; sys.path[:0] = {paths!r}; import anyio, attrs, tests, msgspec"
        may = [*BECOME[who], *python, "-c", f"{imports}; open({str(own / 'may')!r}, 'w')"]
        if subprocess.run(may, capture_output=True, check=False, cwd="/").returncode:
            pytest.skip("another user may not read this checkout, or its Python is another")
    become = BECOME[who] if os.geteuid() == 0 else ()
    limit = 10 * TIMEOUT_S if how == "all" else TIMEOUT_S
    result = subprocess.run(
        [*become, *python, "-c", RUN, json.dumps(paths), str(own), level, ATTACK, how, str(limit)],
        capture_output=True,
        text=True,
        timeout=2 * limit,
        check=False,
        cwd="/",
    )
    assert result.returncode == 0, result.stderr
    facts, found, left = json.loads(result.stdout)
    return facts, found, left


QUICK = {("root with less", "ours", "some"), ("a user", "ours", "some")}
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.thorough)
    for case in itertools.product(BECOME, ["ours", "native"], ["some", "all"])
]


@pytest.mark.needs("bwrap", "rg", "socat")
@pytest.mark.parametrize(("who", "level", "how"), CASES)
def test_attacks_of_a_program_have_no_effect_outside(
    who: str, level: str, how: str, own: Path
) -> None:
    """Try every file of the read-only mounts, or a few of each, depending on ``how``."""
    if who.startswith("root") and os.geteuid() != 0:
        pytest.skip("needs root")
    facts, found, left = attack(who, level, own, how)
    is_nested = level == "native"
    assert found["files"] == []
    # Mount points below /tmp are directories of the sandbox's own /tmp.
    assert sorted(place for place in found["places"] if not place.startswith("/tmp/")) == [
        *("/dev", "/dev/shm", "/home/agent", "/session", "/tmp", "/workspace")
    ]
    assert found["streams"] == ["done", "done"]
    assert found["sockets"] == {
        **dict.fromkeys(("1", "2", "10", "16"), "done"),
        **dict.fromkeys(("17", "31", "38", "40"), "EAFNOSUPPORT"),
    }
    assert found["calls"] == {**dict.fromkeys(found["calls"], "EPERM"), "clone3": "ENOSYS"}
    assert found["set-id"] == ["EPERM", "done", "done"]
    assert left == [USER if who == "a user" and os.geteuid() == 0 else os.geteuid(), 0o755]

    expected = "bwrap-root" if who == "root with less" else "bwrap"
    assert facts["level"] == (f"{expected}+native" if is_nested else expected)
    assert (facts["outer_uid"] == 0) == (who == "root with less")

    none = "0" * 16
    assert found["capabilities"] == [[none] * 5, []]
    assert set(found["unshare"].values()) - {"done"} == {"EPERM"}
    as_root = found["unshare as root"]
    assert as_root == found["clone"] | {"time": as_root["time"]}
    if not is_nested:
        assert set(as_root.values()) == set(found["unshare"].values()) == {"EPERM"}
        assert found["nested"] == "EPERM"
        return
    assert {name for name, answer in as_root.items() if answer == "done"} == {
        *("ipc", "mnt", "net", "pid", "user")
    }
    nested = found["nested"]
    assert not [what for what, answer in nested.items() if answer == "done"], nested
