"""Git repositories of a workspace: reads their settings for an archive, and restores them.

``policy`` leaves out every file of a repository that git follows. The archive records the required
settings as values (:class:`clawblox.checkpoint.model.Repository`), and a load writes new files: the
settings of partial clones and sparse checkouts, and the files that connect submodules and linked
worktrees with their git directories in the same workspace. Paths of repositories are relative to
the workspace here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import attrs
import msgspec

from clawblox.agents.programs import SANDBOX_WORKSPACE
from clawblox.checkpoint.collect import policy, tree
from clawblox.checkpoint.collect.git_config import (
    GitConfig,
    write_config,
    write_worktree_config,
)
from clawblox.checkpoint.model import (
    Filter,
    Promisor,
    RemoteName,
    RemoteUrl,
    Repository,
    SubmoduleName,
)
from clawblox.system.regular_files import read_file
from clawblox.typed_values import converter

_NO_WORKTREE: Final = "its worktree is not in the archive"
_NOT_HTTPS: Final = (
    "the address of a remote with missing objects is not plain https, so git cannot fetch them"
)

_TOO_LARGE: Final = "is too large to be read, alone or with others in the workspace"

_MAX_POINTER_BYTES: Final = 4096
_MAX_CONFIG_BYTES: Final = 1 << 20
_MAX_ALL_CONFIGS_BYTES: Final = 4 << 20
"""Maximum total size of a workspace's configurations; their values take far more memory."""
_POINTER: Final = re.compile(r"(?:gitdir: )?([^\0]*[^\0\r\n])[\r\n]*")
_SHA256_OBJECT: Final = re.compile(
    r"(.*)/objects/(?:[0-9a-f]{2}/[0-9a-f]{62}|pack/pack-[0-9a-f]{64}\.[a-z]+)", re.DOTALL
)

_to_remote: Any = converter(RemoteName)
_to_url: Any = converter(RemoteUrl)
_to_filter: Any = converter(Filter)
_to_submodule: Any = converter(SubmoduleName)


@attrs.frozen
class GitDirectories:
    """The git directories in a workspace.

    Attributes:
        layout: All directories that git may treat as repositories.
        kinds: The directories that git finds by itself, from ``policy.find_git_directories``.
        settings: Settings that a load restores.
        lost: Git directories of linked worktrees that cannot be rebuilt; they are not in ``kinds``.
    """

    layout: policy.Repositories
    kinds: Mapping[str, str]
    settings: Sequence[Repository]
    lost: Sequence[str]

    @classmethod
    def find(
        cls,
        files: Collection[str],
        others: Collection[str],
        read_settings: Callable[[str, str], Repository | None],
    ) -> Self:
        """Find the git directories among the entries of a workspace.

        Args:
            files: Its files.
            others: Its links and empty directories.
            read_settings: Returns the settings of a git directory, given its path and kind; None if
                it has none, or is a linked worktree that cannot be rebuilt.
        """
        paths = [*files, *others]
        layout = policy.find_repositories(paths)
        kinds = policy.find_git_directories(files, layout)
        settings = {path: read_settings(path, kind) for path, kind in kinds.items()}
        lost = [path for path in kinds if kinds[path] == policy.WORKTREES and not settings[path]]
        if lost:
            layout = policy.find_repositories(paths, frozenset(map(policy.fold_path, lost)))
            kinds = policy.find_git_directories(files, layout)
        kept = [each for path in kinds if (each := settings[path]) is not None]
        return cls(layout, kinds, kept, lost)

    def rebuild(self, files: Collection[str], workspace: Path) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of each file that git needs to accept the directories.

        Args:
            files: The files of the restored workspace. The names of objects show the hash function
                of their repository; see gitrepository-layout(5).
            workspace: Path of the workspace when git runs in it, which git records.
        """
        present = set(files)
        kinds = {path: self.kinds[path] for path in self.kinds if f"{path}/HEAD" in present}
        settings = {each.path: each for each in self.settings if each.path in kinds}
        sha256 = {match[1] for match in filter(None, map(_SHA256_OBJECT.fullmatch, files))}
        sparse = {_common(path, kinds[path]) for path in settings if settings[path].is_sparse}
        for path, kind in kinds.items():
            repository = settings.get(path, Repository(path=path))
            git_file = repository.git_file
            work_tree = None if git_file is None else posixpath.dirname(git_file)
            is_linked = kind == policy.WORKTREES
            recorded = None if work_tree is None or is_linked else _relative(work_tree, path)
            if not is_linked:
                config = write_config(
                    repository,
                    work_tree=recorded,
                    is_sha256=path in sha256,
                    has_worktree_config=path in sparse,
                )
                yield f"{path}/config", config
            elif git_file is not None:
                root = SANDBOX_WORKSPACE if repository.in_sandbox else workspace
                yield f"{path}/commondir", b"../..\n"
                yield f"{path}/gitdir", os.fsencode(f"{root / git_file}\n")
            own = write_worktree_config(repository, work_tree=recorded)
            if own and _common(path, kind) in sparse:
                yield f"{path}/config.worktree", own
            if git_file is not None and work_tree is not None:
                yield git_file, f"gitdir: {_relative(path, work_tree)}\n".encode()


@attrs.frozen
class Found:
    """The repositories of a workspace on disk.

    Attributes:
        directories: Their directories and settings.
        reasons: Reasons for omitting entries, by path, if not evident from their names.
        rebuilt: ``.git`` files that a load restores.
    """

    directories: GitDirectories
    reasons: Mapping[str, str]
    rebuilt: Collection[str]


def read_repositories(workspace: Path, listing: tree.Tree, is_name: Callable[[str], bool]) -> Found:
    """Read the settings of the repositories in a workspace. Blocks.

    Args:
        workspace: The workspace. Its path is trusted; no link below it is followed.
        listing: Its entries, including everything inside a git directory that may be content.
        is_name: Returns whether the name of an entry is possible.
    """
    left_out = (path for path, reason in listing.excluded if reason == policy.REDIRECT)
    reading = _Reading(workspace, filter(is_name, left_out))
    others = [*(path for path, _ in listing.links), *listing.directories]
    directories = GitDirectories.find(listing.files, others, reading.read_settings)
    git_files = (repository.git_file for repository in directories.settings)
    reasons = reading.reasons | dict.fromkeys(directories.lost, _NO_WORKTREE)
    return Found(directories, reasons, frozenset(filter(None, git_files)))


class _Reading:
    def __init__(self, workspace: Path, redirects: Iterable[str]) -> None:
        self._workspace = workspace
        own = (str(workspace.absolute()), os.path.realpath(workspace))
        self._roots = (*own, str(SANDBOX_WORKSPACE))
        self.reasons: dict[str, str] = {}
        self._configs: dict[str, GitConfig] = {}
        self._room = _MAX_ALL_CONFIGS_BYTES
        self._pointers = self._read_pointers(redirects)

    def _read_pointers(self, redirects: Iterable[str]) -> Mapping[str, list[str]]:
        """Return the ``.git`` files by the path in the workspace to which they lead."""
        pointers: defaultdict[str, list[str]] = defaultdict(list)
        for path in redirects:
            parent, _, name = path.rpartition("/")
            if name != policy.GIT_DIR:
                continue
            pointer = self._read(path, _MAX_POINTER_BYTES)
            if not pointer.startswith(b"gitdir: "):
                continue
            if (target := self._resolve(parent, pointer)) is None:
                self.reasons[path] = "its repository is outside of the workspace"
            else:
                pointers[target].append(path)
        return pointers

    def _choose_git_file(self, path: str, kind: str) -> str | None:
        """Return the file that leads to a git directory; of several, the recorded file."""
        candidates = self._pointers.get(path, []) if kind else []
        if kind == policy.WORKTREES:
            common = self._resolve(path, self._read(f"{path}/commondir", _MAX_POINTER_BYTES))
            if common != _common(path, kind):
                return None
            recorded = self._resolve(path, self._read(f"{path}/gitdir", _MAX_POINTER_BYTES))
        else:
            work_tree = self._config(f"{path}/config").values("core", "worktree")[-1:]
            recorded = self._resolve(path, f"{work_tree[0]}/.git".encode()) if work_tree else None
        return recorded if recorded in candidates else next(iter(candidates), None)

    def read_settings(self, path: str, kind: str) -> Repository | None:
        """Return the settings of a git directory; None if there are none or they cannot be used."""
        git_file = self._choose_git_file(path, kind)
        is_worktree = kind == policy.WORKTREES
        if is_worktree and git_file is None:
            return None
        config = self._config(f"{_common(path, kind)}/config")
        configs = [config]
        if config.flag("extensions", "worktreeconfig"):
            configs.insert(0, self._config(f"{path}/config.worktree"))

        def own_flag(section: str, key: str) -> bool | None:
            flags = (each.flag(section, key) for each in configs)
            return next((flag for flag in flags if flag is not None), None)

        repository = Repository(
            path=path,
            git_file=git_file,
            in_sandbox=is_worktree and self._is_recorded_in_sandbox(path),
            bare=kind == "" and own_flag("core", "bare") is True,
            sparse_checkout=own_flag("core", "sparsecheckout"),
            sparse_checkout_cone=own_flag("core", "sparsecheckoutcone"),
            sparse_index=own_flag("index", "sparse"),
        )
        if not is_worktree:
            partial_clone = next(reversed(config.values("extensions", "partialclone")), None)
            repository = attrs.evolve(
                repository,
                partial_clone=_keep(_to_remote, partial_clone),
                promisors=tuple(self._read_promisors(path, config, partial_clone)),
                submodules=tuple(_read_active_submodules(config)),
            )
        return None if repository == Repository(path=path) else repository

    def _read_promisors(
        self, path: str, config: GitConfig, partial_clone: str | None
    ) -> Iterator[Promisor]:
        """Yield the remotes with missing objects, and record those that git cannot fetch from."""
        for name in dict.fromkeys((*config.subsections("remote"), partial_clone or "")):
            if not (name == partial_clone or config.flag("remote", "promisor", name)):
                continue
            url = _keep(_to_url, next(iter(config.values("remote", "url", name)), None))
            filters = config.values("remote", "partialclonefilter", name)
            remote = _keep(_to_remote, name)
            if remote is None or url is None:
                self.reasons[f"{path}/config"] = _NOT_HTTPS
            if remote is not None:
                filter_ = _keep(_to_filter, next(reversed(filters), None))
                yield Promisor(name=remote, url=url, filter=filter_)

    def _is_recorded_in_sandbox(self, path: str) -> bool:
        recorded = self._read(f"{path}/gitdir", _MAX_POINTER_BYTES).decode(errors="replace")
        *own, sandbox = self._roots
        return recorded.startswith(f"{sandbox}/") and sandbox not in own

    def _resolve(self, directory: str, pointer: bytes) -> str | None:
        """Return the path to which a file leads; None if it is outside the workspace.

        Args:
            directory: The directory from which a relative path starts.
            pointer: The content of the file.
        """
        match = _POINTER.fullmatch(pointer.decode(errors="surrogateescape"))
        if match is None:
            return None
        path = posixpath.normpath(posixpath.join(directory, match[1]))
        if not path.startswith("/"):
            return None if path.split("/")[0] == ".." else path
        roots = (root for root in self._roots if path.startswith(f"{root}/"))
        return next((path.removeprefix(f"{root}/") for root in roots), None)

    def _config(self, path: str) -> GitConfig:
        """Return a configuration; empty if :meth:`_read` cannot read the file."""
        if path not in self._configs:
            text = self._read(path, min(_MAX_CONFIG_BYTES, self._room))
            self._room -= len(text)
            self._configs[path] = GitConfig.parse(text)
        return self._configs[path]

    def _read(self, path: str, max_bytes: int) -> bytes:
        """Return a file of the workspace; empty if it is absent, not regular or too large."""
        try:
            return read_file(self._workspace, path, max_bytes=max_bytes)
        except OSError as error:
            if error.errno == errno.EFBIG:
                self.reasons[path] = _TOO_LARGE
            return b""


def _read_active_submodules(config: GitConfig) -> Iterator[str]:
    for name in config.subsections("submodule"):
        is_active = config.flag("submodule", "active", name)
        if is_active is None:
            is_active = bool(config.values("submodule", "url", name))
        if is_active and (kept := _keep(_to_submodule, name)) is not None:
            yield kept


def _keep(convert: Callable[[str], str], value: str | None) -> str | None:
    """Return a value of a configuration if a load may restore it, or None."""
    if value is not None:
        with contextlib.suppress(msgspec.ValidationError):
            return convert(value)
    return None


def promisor_hosts(repository: Repository) -> list[str]:
    """Return the hosts, with ports, from which git fetches missing objects of a repository."""
    urls = filter(None, (promisor.url for promisor in repository.promisors))
    return list(dict.fromkeys(urlsplit(url).netloc for url in urls))


def _common(path: str, kind: str) -> str:
    """Return the git directory that contains the ``config`` of a git directory."""
    return path.rpartition("/worktrees/")[0] if kind == policy.WORKTREES else path


def _relative(path: str, directory: str) -> str:
    """Return a path of the workspace relative to one of its directories."""
    return posixpath.relpath(f"/{path}", f"/{directory}")
