"""Frozen values of the checkpoint package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final

import attrs
import msgspec

SCHEMA_VERSION: Final = 2
"""Version of the archive layout that is written, and the newest version that is read."""

MAX_RECORD_BYTES: Final = 64 << 20
"""Maximum size of a transcript's line or of a document, which are kept in memory."""

Transform = Callable[[Iterable[bytes]], Iterator[bytes]]
"""Rewrites the content of a file chunk by chunk while it is copied."""


class RejectedContent(Exception):  # noqa: N818 - names the condition; the caller decides
    """The content of a file does not match its name, so the file is left out.

    Raised by transforms of saves and loads. The argument is the reason in ``excluded``.
    """


@attrs.frozen(kw_only=True)
class WorkspaceLink:
    """A symbolic link of a workspace, recorded in the metadata rather than as a member.

    Attributes:
        path: Its name in the archive.
        target: Its target, unchanged.
    """

    path: str
    target: str


_WORD: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_SIMPLE_FILTER: Final = (
    r"(blob:none|blob:limit=[0-9]{1,18}[kmgKMG]?|tree:[0-9]{1,9}"
    r"|object:type=(blob|commit|tag|tree))"
)
_UNQUOTED: Final = r"[^\x00-\x1f\x7f\"\\\[\]/\ud800-\udfff]+"

RemoteName = Annotated[str, msgspec.Meta(pattern=rf"\A{_WORD}(/{_WORD})*\Z")]
RemoteUrl = Annotated[
    str,
    msgspec.Meta(
        # Without user, password, query and fragment.
        pattern=rf"\Ahttps://{_LABEL}(\.{_LABEL})*(:[0-9]{{1,5}})?(/([A-Za-z0-9._~+,@-]|%20)*)+\Z",
        max_length=2048,
    ),
]
Filter = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"\A({_SIMPLE_FILTER}|combine:{_SIMPLE_FILTER}(\+{_SIMPLE_FILTER})*)\Z",
        max_length=512,
    ),
]
SubmoduleName = Annotated[
    str, msgspec.Meta(pattern=rf"\A(?!-)(?!(.*/)?\.\.?(/|\Z)){_UNQUOTED}(/{_UNQUOTED})*\Z")
]


@attrs.frozen(kw_only=True)
class Promisor:
    """A remote from which git fetches the missing objects of a partial clone.

    Attributes:
        name: Its name in the repository.
        url: Its address; None if it is not plain https, so that git cannot fetch from it.
        filter: Filter of the objects in the clone, as in git-rev-list(1); None if not recorded.
    """

    name: RemoteName
    url: RemoteUrl | None = None
    filter: Filter | None = None


@attrs.frozen(kw_only=True)
class Repository:
    """The settings of a repository that a load restores; its own files are never archived.

    The texts become part of files that git follows, so all except the paths have strict patterns.

    Attributes:
        path: The git directory, by its name in the archive.
        git_file: For a submodule or a linked worktree, the name in the archive of the ``.git`` file
            that leads to ``path``; None without such a file.
        in_sandbox: Whether git recorded ``git_file`` with its path in a sandbox.
        bare: Whether a ``.git`` has no work tree.
        partial_clone: The value of ``extensions.partialClone``.
        promisors: The remotes from which git fetches missing objects.
        sparse_checkout: The value of ``core.sparseCheckout``; None if not set.
        sparse_checkout_cone: The value of ``core.sparseCheckoutCone``; None if not set.
        sparse_index: The value of ``index.sparse``; None if not set.
        submodules: Names of the active submodules.
    """

    path: str
    git_file: str | None = None
    in_sandbox: bool = False
    bare: bool = False
    partial_clone: RemoteName | None = None
    promisors: tuple[Promisor, ...] = ()
    sparse_checkout: bool | None = None
    sparse_checkout_cone: bool | None = None
    sparse_index: bool | None = None
    submodules: tuple[SubmoduleName, ...] = ()

    @property
    def is_sparse(self) -> bool:
        """True if it has settings of a sparse checkout, which each worktree has separately."""
        sparse = self.sparse_checkout, self.sparse_checkout_cone, self.sparse_index
        return any(setting is not None for setting in sparse)


@attrs.frozen(kw_only=True)
class Source:
    """A file to be archived.

    Attributes:
        name: Its path in the checkpoint.
        path: Its path, for messages.
        open: Opens the regular file for reading without following symbolic links; returns a new
            descriptor, or raises OSError.
        keeps_mode: Whether an executable file is archived as executable.
        whole_lines: Whether the file consists of lines and may grow. The part after the last
            newline is left out, unless it is a complete record.
        transform: Rewrites its content; None leaves it unchanged.
        max_bytes: Maximum apparent size; a larger file is not read. None means no limit.
        neutral_name: Name of its member if ``name`` is not allowed; None otherwise.
        listed_as: Its path in ``excluded`` if it has no member; None means ``name``.
    """

    name: str
    path: Path
    open: Callable[[], int] = attrs.field(repr=False)
    keeps_mode: bool = False
    whole_lines: bool = False
    transform: Transform | None = None
    max_bytes: int | None = None
    neutral_name: str | None = None
    listed_as: str | None = None

    @property
    def member(self) -> str:
        """Name of its member in the archive."""
        return self.neutral_name or self.name


@attrs.frozen(kw_only=True)
class AgentState:
    """An agent's entry in ``metadata.json``.

    Attributes:
        backend: Its driver, such as ``claude``; None if it has no session tier.
        session_format: Name of the conversation format, such as ``claude-code-v1``; None if the
            agent has no session tier, as for the other attributes.
        session_id: The recorded id of its conversation.
        state_dir: The state directory of its program, relative to the agent's directory, to which a
            load restores the state.
        mid_turn: Whether the conversation was cut in the middle of a turn.
    """

    backend: str | None = None
    session_format: str | None = None
    session_id: str | None = None
    state_dir: str | None = None
    mid_turn: bool | None = None


@attrs.frozen(kw_only=True)
class Allowance:
    """A finding that the operator allows.

    Attributes:
        path: The ``path`` of the finding.
        rule: The ``rule`` of the finding.
        fingerprint: The ``fingerprint`` of the finding.
        reason: Reason why it is not a secret; recorded in the metadata.
    """

    path: str
    rule: str
    fingerprint: str
    reason: str


@attrs.frozen(kw_only=True)
class Limits:
    """The largest archive that a reader accepts.

    Attributes:
        entries: Number of members, and also of the directories that contain them.
        metadata_bytes: Size of ``metadata.json``, in bytes.
        file_bytes: Size of any other member, in bytes.
        total_bytes: Size of all members together, in bytes.
        ratio: Decompressed bytes per compressed byte; deflate reaches at most 1032.
        directory_bytes: Size of the archive's own directory, in bytes.
        metadata_values: Number of values in ``metadata.json``, because each takes more memory than
            its text.
    """

    entries: int = 500_000
    metadata_bytes: int = 128 << 20
    file_bytes: int = 64 << 30
    total_bytes: int = 256 << 30
    ratio: int = 1100
    directory_bytes: int = 128 << 20
    metadata_values: int = 4_000_000
