"""Decides the place in a run directory of each entry of an archive, if any.

Names that ``policy`` keeps out of archives are not restored, and conversations are limited to the
names that their format allows. Pure; ``load`` writes the files.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec

from clawblox.agents.programs import STATE_DIR
from clawblox.checkpoint.archive.layout import ArchiveEntry
from clawblox.checkpoint.archive.metadata import recorded_repositories
from clawblox.checkpoint.collect.conversations import (
    FORMATS,
    ConversationFormat,
    Placement,
    UnrecordedConversation,
)
from clawblox.checkpoint.collect.conversations.transcripts import document_transform
from clawblox.checkpoint.collect.policy import (
    GIT_DIR,
    NO_REPOSITORIES,
    WORKTREES,
    FoldedPath,
    fold_path,
    link_stays_inside,
    workspace_exclusion,
)
from clawblox.checkpoint.collect.repositories import GitDirectories, promisor_hosts
from clawblox.checkpoint.load.staging import Parts
from clawblox.checkpoint.model import Repository
from clawblox.checkpoint.names import ROWS_NAME, SNAPSHOT_NAME, check_name, find_tier, split_name
from clawblox.results import Excluded

_NO_REPOSITORY = "settings of a repository that the archive does not have"
_NO_PART = "not a part of a conversation that is restored"


_RECORD = "record/"
"""Prefix of the files of a session tier that are not part of the conversation itself."""

_USAGE = f"{_RECORD}usage.json"
_USAGE_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


@attrs.frozen(kw_only=True)
class _Conversation:
    """The conversation of an agent, as the archive describes it.

    Attributes:
        format: Its format.
        id: Its id; None if the metadata does not record it.
        state_dir: The state directory of its program.
        unrecorded: In an archive of another writer, the conversation determined from the names of
            its files, or the reason why it cannot be determined; None in an archive of this
            package.
        has_id_file: Whether the archive contains the file that records the id.
    """

    format: ConversationFormat
    id: str | None
    state_dir: str
    unrecorded: UnrecordedConversation | str | None = None
    has_id_file: bool = False


class Placing:
    """The places of an archive's entries in a run directory.

    Args:
        metadata: The archive's metadata.
        entries: Its members.
        run_dir: The run directory's real path; it need not exist.
        keep: Entries to restore even though programs execute or follow them, as for
            ``policy.workspace_exclusion``.
        directories: Paths of the directories with entries of their own in the archive.
        is_in_place: As for ``load``.

    Attributes:
        excluded: Entries without a place, with the reasons.
    """

    def __init__(
        self,
        metadata: Mapping[str, Any],
        entries: Iterable[ArchiveEntry],
        run_dir: Path,
        keep: Collection[FoldedPath] = (),
        directories: Iterable[str] = (),
        *,
        is_in_place: bool = False,
    ) -> None:
        self._keep = keep
        self._is_in_place = is_in_place
        entered = (path for path in directories if find_tier(path) == "workspace")
        self._directories = dict.fromkeys((*metadata.get("directories", ()), *entered))
        self.excluded: list[Excluded] = []
        self._rejected: set[str] = set()
        self._metadata = metadata
        names = tuple(entry.name for entry in entries)
        self._conversations = _find_conversations(metadata, names)
        self._placed: dict[str, str] = {}  # ids of conversations with a place
        self._run_dir = run_dir
        self._files = _paths_by_agent(names, "workspace")
        self._git = self._find_git_directories()

    def place(self, entry: ArchiveEntry) -> Placement | None:
        """Return the place of a member other than ``metadata.json``, or None.

        The path of the place is relative to the run directory.

        Raises:
            CheckpointFormatError: The metadata of its conversation is invalid.
        """
        place = self._find(entry.name)
        if isinstance(place, Placement):
            return place
        self._is_excluded(entry.name, place)
        return None

    def reject(self, entry: ArchiveEntry, reason: str) -> None:
        """Record that a member was not restored because of its content."""
        self._rejected.add(entry.name)
        self._is_excluded(entry.name, reason)

    def links(self) -> Iterator[tuple[Parts, str]]:
        """Yield the paths of the links to create, with their targets."""
        for link in self._metadata.get("symlinks", ()):
            path, target = link["path"], link["target"]
            reason = self._workspace_exclusion(path)
            if reason is None and not link_stays_inside(path.split("/", 3)[-1], target):
                reason = "would lead out of the workspace"
            if not self._is_excluded(path, reason):
                yield split_path(path), target

    def directories(self) -> Iterator[Parts]:
        """Yield the paths of the directories to create, which may be empty."""
        for path in self._directories:
            if not self._is_excluded(path, self._workspace_exclusion(path, directory=True)):
                yield split_path(path)

    def git_files(self) -> Iterator[tuple[Parts, bytes]]:
        """Yield the paths of files to create for git repositories, with their contents."""
        for agent, git in self._git.items():
            workspace = self._run_dir / "agents" / agent / "workspace"
            for path, content in git.rebuild(self._files[agent], workspace):
                yield ("agents", agent, "workspace", *split_path(path)), content

    @property
    def git_hosts(self) -> Mapping[str, Mapping[str, Sequence[str]]]:
        """Hosts from which git fetches missing objects, by agent and git directory."""
        hosts: defaultdict[str, dict[str, Sequence[str]]] = defaultdict(dict)
        for agent, git in self._git.items():
            for repository in git.settings:
                if names := promisor_hosts(repository):
                    hosts[agent][repository.path] = names
        return dict(hosts)

    def _find_git_directories(self) -> Mapping[str, GitDirectories]:
        """Return the git directories of each agent; record settings without a git directory."""
        links = (link["path"] for link in self._metadata.get("symlinks", ()))
        others = _paths_by_agent((*links, *self._directories), "workspace")
        recorded = {each.path: each for each in recorded_repositories(self._metadata)}
        directories = {}
        for agent, files in self._files.items():
            prefix = f"agents/{agent}/workspace/"
            directories[agent] = GitDirectories.find(
                [path for path in files if not self._is_denied_head(path)],
                others.get(agent, ()),
                functools.partial(self._find_settings, prefix, recorded),
            )
            for settings in directories[agent].settings:
                del recorded[prefix + settings.path]
        self.excluded += [Excluded(path=path, reason=_NO_REPOSITORY) for path in recorded]
        return directories

    def _is_denied_head(self, path: str) -> bool:
        unsettled = functools.partial(workspace_exclusion, repositories=None, keep=self._keep)
        return path.endswith("HEAD") and unsettled(path) is not None

    def _find_settings(
        self, prefix: str, recorded: Mapping[str, Repository], path: str, kind: str
    ) -> Repository | None:
        """Return the recorded settings of a git directory; None if missing or unusable."""
        settings = recorded.get(prefix + path)
        if settings is None:
            return None
        if settings.git_file is None:
            return None if kind == WORKTREES else attrs.evolve(settings, path=path)
        git_file = settings.git_file.removeprefix(prefix)
        work_tree, _, name = f"/{git_file}".rpartition("/")
        is_possible = (
            kind
            and name == GIT_DIR
            and git_file != settings.git_file
            and GIT_DIR not in fold_path(work_tree)
            and (work_tree == "" or self._is_restored_directory(work_tree[1:]))
        )
        return attrs.evolve(settings, path=path, git_file=git_file) if is_possible else None

    def _is_restored_directory(self, path: str) -> bool:
        return workspace_exclusion(path, directory=True, keep=self._keep) is None

    def _find(self, name: str) -> Placement | str:
        """Return the place of a member, or the reason why it has none."""
        split = split_name(name)
        if split is not None and split[1] == "session":
            return self._find_conversation(split[0], split[2])
        if name in (SNAPSHOT_NAME, ROWS_NAME):
            return Placement(path=name)
        return self._workspace_exclusion(name) or Placement(path=name, keeps_mode=True)

    def id_files(self) -> Iterator[tuple[Parts, bytes]]:
        """Yield path and content of the missing id files of placed conversations.

        An id file in the archive is restored like any other member.
        """
        for agent, conversation_id in self._placed.items():
            conversation = self._conversations[agent]
            if not conversation.has_id_file:
                path = ("agents", agent, conversation.format.program.id_file)
                yield path, f"{conversation_id}\n".encode()

    @property
    def lost_conversations(self) -> Mapping[str, str]:
        """Reasons for omitted conversations whose files are in the archive, by agent."""
        return {
            split[0]: entry.reason
            for entry in reversed(self.excluded)
            if (split := split_name(entry.path))
            and split[1] == "session"
            and entry.reason != _NO_PART
            and entry.path not in self._rejected
        }

    def _find_conversation(self, agent: str, path: str) -> Placement | str:
        conversation = self._conversations.get(agent)
        if conversation is None:
            return "the archive records no conversation of a known format"
        if conversation.id is not None:
            placed = self._place_part(agent, conversation, path, conversation.id)
            if placed != _NO_PART or conversation.unrecorded is None:
                return placed
        if not isinstance(conversation.unrecorded, UnrecordedConversation):
            return conversation.unrecorded or _NO_PART
        name = conversation.unrecorded.names.get(path)
        if name is None and path.startswith(_RECORD):
            name = path
        if name is None:
            return _NO_PART
        return self._place_part(agent, conversation, name, conversation.unrecorded.id)

    def _place_part(
        self, agent: str, conversation: _Conversation, name: str, conversation_id: str
    ) -> Placement | str:
        workspace = self._run_dir / "agents" / agent / "workspace"
        placement = conversation.format.place(
            name,
            conversation_id=conversation_id,
            workspace=workspace,
            state_dir=conversation.state_dir,
        )
        if placement is None:
            return _NO_PART
        # The path contains the conversation id from the archive, which is not trusted.
        check_name(f"agents/{agent}/session/{placement.path}")
        if not name.startswith(_RECORD):
            self._placed[agent] = conversation_id
        if name == _USAGE and not self._is_in_place:
            placement = attrs.evolve(placement, transform=document_transform(_note_inherited))
        return attrs.evolve(placement, path=f"agents/{agent}/{placement.path}")

    def _workspace_exclusion(self, name: str, *, directory: bool = False) -> str | None:
        split = split_name(name)
        if split is None or split[1] != "workspace":
            return "is not in a workspace"
        git = self._git.get(split[0])
        return workspace_exclusion(
            split[2],
            directory=directory,
            repositories=NO_REPOSITORIES if git is None else git.layout,
            keep=self._keep,
        )

    def _is_excluded(self, path: str, reason: str | None) -> bool:
        """Record the reason for omitting an entry, if any; return whether there is one."""
        if reason is not None:
            self.excluded.append(Excluded(path=path, reason=reason))
        return reason is not None


def agent_names(
    metadata: Mapping[str, Any], entries: Iterable[ArchiveEntry], directories: Iterable[str]
) -> tuple[str, ...]:
    """Return the agents in the metadata, members or directories of an archive.

    Args:
        metadata: The archive's metadata.
        entries: Its members.
        directories: Paths of the directories with entries of their own.
    """
    paths = (path.split("/", 2) for path in (*(entry.name for entry in entries), *directories))
    present = (parts[1] for parts in paths if parts[0] == "agents" and len(parts) > 1)
    return tuple(dict.fromkeys((*metadata.get("agents", ()), *present)))


def _find_conversations(
    metadata: Mapping[str, Any], names: Iterable[str]
) -> Mapping[str, _Conversation]:
    """Return the conversations of agents whose session tier has files of a known format."""
    agents = metadata.get("agents")
    states = agents if isinstance(agents, dict) else {}  # an old archive may list only the names
    shared_format = metadata.get("session_format")
    conversations = {}
    for agent, listed in _paths_by_agent(names, "session").items():
        state = states.get(agent, {})
        conversation_format = FORMATS.get(state.get("session_format") or shared_format or "")
        if conversation_format is None:
            continue
        conversation_id = state.get("session_id")
        conversations[agent] = _Conversation(
            format=conversation_format,
            id=conversation_id,
            state_dir=state.get("state_dir") or STATE_DIR,
            unrecorded=_find_unrecorded(conversation_format, conversation_id, listed),
            has_id_file=f"{_RECORD}{conversation_format.program.id_file}" in listed,
        )
    return conversations


def _find_unrecorded(
    conversation_format: ConversationFormat, conversation_id: str | None, paths: Sequence[str]
) -> UnrecordedConversation | str | None:
    if conversation_id is not None and conversation_format.has_own_layout(paths):
        return None
    conversation = conversation_format.find_unrecorded(paths)
    if isinstance(conversation, str) or conversation_id in (None, conversation.id):
        return conversation
    return "the transcript in the archive does not belong to the recorded conversation"


def _paths_by_agent(names: Iterable[str], tier: str) -> Mapping[str, list[str]]:
    """Return the paths in a tier of each agent, relative to it."""
    paths: defaultdict[str, list[str]] = defaultdict(list)
    for split in filter(None, map(split_name, names)):
        if split[1] == tier:
            paths[split[0]].append(split[2])
    return paths


def _note_inherited(content: bytes) -> bytes:
    """Return a usage record with all usage marked as inherited; leave invalid content unchanged."""
    try:
        record = _USAGE_DECODER.decode(content)
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError):
        return content
    record["inherited"] = msgspec.Raw(b"null")
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def split_path(path: str) -> Parts:
    """Return the components of a path."""
    return tuple(path.split("/"))
