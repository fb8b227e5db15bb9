"""A sandboxed program's view of this machine, as bubblewrap's arguments. Pure.

The program sees ``/usr``, a few required parts of ``/etc``, its own files, and the agent's
directories under neutral paths. Everything except workspace, home and state is read-only. See
bwrap(1).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import attrs

from clawblox.agents.layout import AgentDir
from clawblox.agents.programs import SANDBOX_WORKSPACE
from clawblox.system.outer_user import OUTER_DIR

SANDBOX_HOME: Final = Path("/home/agent")
SANDBOX_STATE: Final = Path("/session")
SANDBOX_RUNTIME: Final = Path("/runtime")
SANDBOX_DEPS: Final = Path("/sandbox-deps")
"""Files that a world lets its agents read: ``[sandbox] deps_root``."""

SANDBOX_UID: Final = 1000
SANDBOX_GID: Final = 1000

_LINKS: Final = ("bin", "sbin", "lib", "lib64")
"""Directories of ``/usr`` that also have a path without ``/usr``."""

SYSTEM_DIRS: Final = (Path("/usr"), *(Path("/") / name for name in _LINKS))
"""Directories with the system's programs and libraries, under all their paths."""

# Not all of /etc/ssl and /etc/pki: root could also read the private keys there from inside.
_SHARED_ETC: Final = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "pki/tls/openssl.cnf",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/cert.pem",
    "ssl/openssl.cnf",
    "timezone",
)

_OWN_ETC: Final = ("group", "hosts", "passwd", "resolv.conf")

_SYSTEM_PATH: Final = (
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/local/sbin",
    "/usr/sbin",
    "/sbin",
)

_SCRATCH: Final = "/tmp"  # noqa: S108 - a file system of the sandbox's own


@attrs.frozen
class ProcCovers:
    """Names of entries of ``/proc`` that are covered in the sandbox.

    Attributes:
        read_only: Directories that are shown read-only.
        hidden: Files that are not world-readable, or are writable.
    """

    read_only: tuple[str, ...]
    hidden: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Inside:
    """A program's view.

    Attributes:
        directory: The agent's directory on this machine.
        etc: Directory on this machine with the files named by :meth:`etc_files`.
        program: Files and directories of the program, visible under their paths on this machine.
        links: Symbolic links, as pairs of path and target.
        commands: Directories of the program for ``PATH``.
        runtime: Names of the files in the agent's runtime directory that the program may read.
        deps: The directory shown as ``/sandbox-deps``; None without dependencies.
        hosts: Names for addresses of the sandbox, as pairs of address and name.
        variables: Variables set only inside, not in bubblewrap itself.
        covers: Entries of ``/proc`` that cannot be written or opened inside.
        is_bound: Whether bubblewrap finds :attr:`own_files` and :attr:`shown_files` bound in
            ``outer_user.OUTER_DIR`` instead of at their own paths.
    """

    directory: AgentDir
    etc: Path
    program: tuple[Path, ...] = ()
    links: tuple[tuple[Path, str], ...] = ()
    commands: tuple[Path, ...] = ()
    runtime: tuple[str, ...] = ()
    deps: Path | None = None
    hosts: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    covers: ProcCovers = ProcCovers((), ())
    is_bound: bool = False

    @property
    def own_files(self) -> tuple[Path, ...]:
        """Paths on this machine that the program may write."""
        return self.directory.workspace, self.directory.home, self.directory.state

    @property
    def shown_files(self) -> tuple[Path, ...]:
        """Paths that the program may read, in addition to world-readable files of this machine."""
        return (
            *(self.etc / name for name in _OWN_ETC),
            *(self.directory.runtime / name for name in self.runtime),
            *_outermost(self.program),
            *(() if self.deps is None else (self.deps,)),
        )

    def arguments(self) -> list[str]:
        """Return bubblewrap's arguments before the command, except for the network options."""
        return [
            *self._namespaces(),
            *self._system(),
            *self._program(),
            *self._agent(),
            *(word for name, value in self.variables for word in ("--setenv", name, value)),
            *("--remount-ro", "/", "--chdir", str(SANDBOX_WORKSPACE)),
        ]

    def etc_files(self) -> dict[str, str]:
        """Return the sandbox's own files of ``/etc``, by name."""
        user = f"agent:x:{SANDBOX_UID}:{SANDBOX_GID}"
        hosts = [("127.0.0.1", "localhost"), ("::1", "localhost"), ("127.0.0.1", "agent")]
        files = {
            "group": f"root:x:0:\nagent:x:{SANDBOX_GID}:\nnogroup:x:65534:\n",
            "hosts": "".join(f"{address} {name}\n" for address, name in (*hosts, *self.hosts)),
            "passwd": (
                "root:x:0:0:root:/root:/bin/sh\n"
                f"{user}:agent:{SANDBOX_HOME}:/bin/bash\n"
                "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            ),
            "resolv.conf": "# No name server can be reached from here.\n",
        }
        assert files.keys() == set(_OWN_ETC)
        return files

    def _namespaces(self) -> Iterator[str]:
        yield from ("--unshare-user", "--uid", str(SANDBOX_UID), "--gid", str(SANDBOX_GID))
        yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", "agent")
        yield from ("--new-session", "--cap-drop", "ALL")

    def _system(self) -> Iterator[str]:
        yield from ("--ro-bind", "/usr", "/usr")
        for name in _LINKS:
            yield from ("--symlink", f"usr/{name}", f"/{name}")
        yield from ("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", _SCRATCH)
        for name in self.covers.read_only:
            yield from ("--ro-bind", f"/proc/{name}", f"/proc/{name}")
        for name in self.covers.hidden:
            yield from ("--ro-bind", "/dev/null", f"/proc/{name}")
        for name in _SHARED_ETC:
            yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
        for name in _OWN_ETC:
            yield from ("--ro-bind", self._source(self.etc / name), f"/etc/{name}")

    def _program(self) -> Iterator[str]:
        for path in _outermost(self.program):
            yield from ("--ro-bind", self._source(path), str(path))
        for place, target in self.links:
            yield from ("--symlink", target, str(place))
        if self.deps is not None:
            yield from ("--ro-bind", self._source(self.deps), str(SANDBOX_DEPS))

    def _agent(self) -> Iterator[str]:
        places = SANDBOX_WORKSPACE, SANDBOX_HOME, SANDBOX_STATE
        for path, place in zip(self.own_files, places, strict=True):
            yield from ("--bind", self._source(path), str(place))
        yield from ("--dir", str(SANDBOX_RUNTIME))
        for name in self.runtime:
            place = SANDBOX_RUNTIME / name
            yield from ("--ro-bind", self._source(self.directory.runtime / name), str(place))

    def _source(self, path: Path) -> str:
        """Return the path at which bubblewrap finds a file."""
        if not self.is_bound:
            return str(path)
        return f"{OUTER_DIR}/{(*self.own_files, *self.shown_files).index(path)}"


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that are not within another path and not already visible."""
    chosen: list[Path] = []
    for path in sorted(set(paths)):
        if not path.is_relative_to("/usr") and not any(map(path.is_relative_to, chosen)):
            chosen.append(path)
    return chosen


def visible_path(search: str, inside: Inside) -> str:
    """Return the inner ``PATH``: directories of the program, visible ones, the system's.

    Args:
        search: ``PATH`` on this machine.
        inside: The view of the program.
    """
    seen = [Path("/usr"), SANDBOX_WORKSPACE, SANDBOX_HOME, SANDBOX_DEPS, *inside.program]
    given = [Path(place) for place in search.split(":") if place.startswith("/")]
    kept = [str(place) for place in given if any(map(place.is_relative_to, seen))]
    own = [str(place) for place in inside.commands if not place.is_relative_to("/usr")]
    return ":".join(dict.fromkeys([*own, *kept, *_SYSTEM_PATH]))


_WRITABLE = 0o222
_READABLE = 0o004


def find_proc_covers() -> ProcCovers:
    """Return the covered entries on this machine. Blocks.

    Raises:
        OSError: ``/proc`` cannot be read.
    """
    read_only, hidden = [], []
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() or entry.is_symlink():  # processes and links to them
                continue
            if entry.is_dir(follow_symlinks=False):
                read_only.append(entry.name)
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            if mode & _WRITABLE or not mode & _READABLE:
                hidden.append(entry.name)
    return ProcCovers(tuple(sorted(read_only)), tuple(sorted(hidden)))
