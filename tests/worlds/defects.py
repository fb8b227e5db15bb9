"""The defects of ``provable.py``, and the check of ``clawblox check`` that must find each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

CLOCKS = ("lockstep", "realtime")


class Defect(NamedTuple):
    """One mistake in a world.

    Attributes:
        summary: The mistake, in one sentence.
        lockstep: Id of the check that must find it in lockstep; None if it has no effect there.
        realtime: The same for real time.
    """

    summary: str
    lockstep: str | None
    realtime: str | None

    def check(self, clock: str) -> str | None:
        """Return the id of the check that must find it with a clock; None if it has no effect."""
        return self.lockstep if clock == "lockstep" else self.realtime


def _everywhere(check: str, summary: str) -> Defect:
    return Defect(summary, check, check)


_RESTORES = {
    "loses-chance": _everywhere(
        "restore.trace", "A restore starts the random generator from a constant seed."
    ),
    "reseeds-on-restore": _everywhere(
        "restore.second", "A restore seeds the random generator from the host's entropy."
    ),
    "rounds-floats": _everywhere("restore.trace", "A save rounds numbers to six digits."),
    "loses-impulse": _everywhere(
        "restore.trace", "A restore loses the pending effect of pushes on the velocity."
    ),
    "restores-late": _everywhere("restore.trace", "A restore sets the time one tick too late."),
    "unsaved-fatigue": Defect(
        "A hidden counter that weakens later inputs is missing in the snapshot.",
        "restore.trace",
        "restore.landings",
    ),
    "luck-by-entropy": Defect(
        "The luck of inputs comes from the host's entropy.",
        "restore.trace",
        "restore.landings",
    ),
    "loses-streak": Defect(
        "A restore loses a counter that is zero after every third input of an agent.",
        "restore.cut_points",
        None,  # the input before a cut is random
    ),
    "loses-carried": Defect(
        "A restore loses the carried item, so only a snapshot taken while carrying shows it.",
        "restore.cut_points",
        None,
    ),
    "doubles-count": Defect(
        "A restored world adds the restored count to the saved count once more.",
        "restore.again",
        "restore.trace",
    ),
    "stale-agents": Defect(
        "A restored world saves its agents as they were when they were restored.",
        "restore.again",
        "restore.trace",
    ),
    "reverses-sessions": Defect(
        "A restore reverses the order of the sessions in the next snapshot.",
        "restore.resnapshot",
        "restore.trace",
    ),
    "save-draws": _everywhere(
        "restore.save_changes_nothing", "A save draws from the world's random generator."
    ),
    "save-ticks": Defect(
        "A save advances the world by a tick.",
        "restore.save_changes_nothing",
        None,  # the same tick is only reached sooner
    ),
    "save-steps": _everywhere(
        "restore.save_changes_nothing",
        "A save moves everything by a step without counting the tick.",
    ),
    "save-clears-pending": Defect(
        "A save discards the inputs that wait for the next tick.",
        None,  # no input waits in lockstep
        "restore.pending",
    ),
    "loses-pending": Defect(
        "A restore loses the inputs that wait for the next tick.", None, "restore.pending"
    ),
    "loses-last-session": _everywhere(
        "restore.sessions", "A restore loses the session that joined last."
    ),
    "needs-rejoin": _everywhere(
        "restore.sessions", "A restored session is refused until it joins again."
    ),
    "loses-chat": _everywhere("restore.chat", "A restore loses the chat history."),
    "restarts-chat-ids": _everywhere(
        "restore.chat", "After a restore, ids of chat messages start from 1 again."
    ),
    "joiner-by-entropy": Defect(
        "The host's entropy decides where an agent that joins is placed.",
        "restore.joins",
        None,  # the place depends on the tick of the join
    ),
    "restarts-agent-ids": _everywhere(
        "restore.joins", "After a restore, ids of new agents start from 1 again and collide."
    ),
}

_GATES = {
    "snapshot-open": _everywhere("gate.snapshot_token", "The snapshot needs no token."),
    "any-token-accepted": _everywhere("gate.snapshot_token", "Any operator token is accepted."),
    "token-in-query": _everywhere("gate.token_forms", "The token is accepted in the query."),
    "token-as-bearer": _everywhere(
        "gate.token_forms", "The token is accepted in the Authorization header."
    ),
    "observe-without-session": _everywhere(
        "gate.sessions", "An observation without a session shows the first agent's."
    ),
    "observe-unknown-session": _everywhere(
        "gate.unknown_session", "An unknown session observes as the first agent."
    ),
    "input-unknown-session": _everywhere(
        "gate.unknown_session", "An unknown session acts as the first agent."
    ),
    "unknown-joins": _everywhere(
        "gate.adoption", "A join adopts an unknown session id as its own."
    ),
    "sessions-from-saved-key": _everywhere(
        "gate.fresh_sessions", "Two restores issue the same session id to their next agents."
    ),
    "foreign-host-accepted": _everywhere("gate.foreign_host", "Any Host header is accepted."),
    "foreign-origin-accepted": _everywhere("gate.foreign_origin", "Any Origin is accepted."),
    "no-max-players": _everywhere("gate.limits", "More agents than max_players may join."),
    "unbounded-body": _everywhere("gate.large_body", "Bodies of any length are accepted."),
    "sessions-count": _everywhere("gate.session_ids", "Sessions are numbers that count."),
}

_REFUSALS = {
    "corrupt-starts-fresh": _everywhere(
        "refuse.corrupt", "A damaged snapshot is ignored, and the world starts fresh."
    ),
    "refuses-late": _everywhere(
        "refuse.corrupt", "The snapshot is read only after the first request was answered."
    ),
    "refuses-without-error": _everywhere(
        "refuse.corrupt", "A world that refuses a snapshot exits with status 0."
    ),
    "empty-starts-fresh": _everywhere(
        "refuse.empty", "An empty snapshot is ignored, and the world starts fresh."
    ),
    "truncated-starts-fresh": _everywhere(
        "refuse.truncated", "A truncated snapshot is ignored, and the world starts fresh."
    ),
    "foreign-accepted": _everywhere(
        "refuse.foreign", "A snapshot with another scene hash is restored."
    ),
    "newer-accepted": _everywhere("refuse.newer", "A snapshot of a newer version is restored."),
    "missing-starts-fresh": _everywhere(
        "refuse.missing", "Without the file to resume from, the world starts fresh."
    ),
}

_VISIBLE = {
    "date-header": _everywhere("invisible.headers", "Every answer has a Date header."),
    "request-counter": _everywhere(
        "invisible.headers", "Every answer has a header that counts the requests of the process."
    ),
    "chat-host-time": _everywhere(
        "invisible.host_time", "Chat messages have the host's time in created_at."
    ),
    "observation-host-time": _everywhere(
        "invisible.host_time", "Observations have the host's time in milliseconds."
    ),
    "observation-host-date": _everywhere(
        "invisible.host_time", "Observations have the host's time as ISO 8601 text."
    ),
    "observation-pid": _everywhere("invisible.process_ids", "Observations have the process id."),
    "observation-launch-id": _everywhere(
        "invisible.process_ids", "Observations have an id that each launch draws."
    ),
    "observation-path": _everywhere(
        "invisible.operator", "Observations have an absolute path of the host."
    ),
    "observation-token": _everywhere("invisible.operator", "Observations have the operator token."),
}

_STATIC = {
    "broken-world-toml": _everywhere("static.world_toml", "max_players in world.toml is a text."),
    "misspelled-key": _everywhere(
        "static.spelling", "A key of world.toml is misspelled: descripton."
    ),
    "api-empty": _everywhere("static.api_doc", "The API document is empty."),
    "api-mentions-snapshot": _everywhere(
        "static.hidden_routes", "The API document mentions /snapshot."
    ),
    "api-without-actions": _everywhere(
        "static.actions", "Neither API document nor world.toml has an action."
    ),
}

_CONTRACT = {
    "exits-at-start": _everywhere("contract.ready", "The world exits without being ready."),
    "alias-missing": _everywhere("contract.alias", "There is no /skill.md."),
    "join-shares-session": _everywhere(
        "contract.join", "A second agent gets the session of the first."
    ),
    "rejoin-is-new": _everywhere(
        "contract.rejoin", "A join with a known session answers another session."
    ),
    "observation-nan": _everywhere("contract.observe", "Observations have the number NaN."),
    "observation-without-time": _everywhere(
        "contract.time", "Observations have neither time nor tick."
    ),
    "input-answers-text": _everywhere(
        "contract.input", "The answer to an input is a text instead of JSON."
    ),
    "malformed-ends-world": _everywhere("contract.malformed", "Malformed JSON ends the world."),
    "malformed-is-500": _everywhere("contract.malformed", "Malformed JSON is answered with 500."),
    "chat-is-private": _everywhere("contract.chat", "Agents see their own chat messages only."),
    "leave-keeps-session": _everywhere(
        "contract.leave", "A session still works after its agent left."
    ),
    "refused-body-unread": _everywhere(
        "contract.keep_alive", "The body of a refused POST is left in the kept connection."
    ),
    "join-body-unread": _everywhere(
        "contract.keep_alive", "The body of a join is left in the kept connection."
    ),
    "observation-too-large": _everywhere(
        "contract.answer_size", "An observation has more than 4 MiB."
    ),
    "ignores-base-path": _everywhere("contract.base_path", "WORLD_BASE_PATH is ignored."),
    "listens-everywhere": _everywhere(
        "contract.environment", "WORLD_HOST is ignored: it listens on every address."
    ),
    "ignores-port-flag": _everywhere("contract.flags", "WORLD_PORT overrides --port."),
    "snapshot-without-format": _everywhere(
        "contract.snapshot_header", "The snapshot has no format."
    ),
    "snapshot-without-time": _everywhere("contract.snapshot_header", "The snapshot has no time."),
    "snapshot-has-nan": _everywhere("contract.snapshot_header", "A number of the snapshot is NaN."),
    "snapshot-without-identity": _everywhere(
        "contract.scene_identity", "The snapshot has no scene hash."
    ),
}

_HYGIENE = {
    "snapshot-keeps-history": _everywhere("hygiene.growth", "Every input is kept in snapshots."),
    "snapshot-has-token": _everywhere("hygiene.secrets", "The operator token is in snapshots."),
    "snapshot-has-environment": _everywhere(
        "hygiene.secrets", "The environment with its secrets is in snapshots."
    ),
    "snapshot-has-path": _everywhere("hygiene.paths", "An absolute path is in snapshots."),
    "log-has-token": _everywhere("hygiene.token_on_disk", "The operator token is in the log."),
    "file-had-token": _everywhere(
        "hygiene.token_on_disk",
        "The operator token is in a file that the next life overwrites.",
    ),
    "ignores-sigterm": _everywhere("hygiene.stop", "The world ignores SIGTERM."),
    "leaves-file": _everywhere("hygiene.files", "The world leaves a file in its directory."),
    "leaves-daemon": _everywhere("hygiene.processes", "The world leaves a daemon process."),
    "script-errors": _everywhere(
        "hygiene.script_errors", "The world reports an error of a script, after which it went on."
    ),
}

DEFECTS: Mapping[str, Defect] = {
    **_RESTORES,
    **_GATES,
    **_REFUSALS,
    **_VISIBLE,
    **_STATIC,
    **_CONTRACT,
    **_HYGIENE,
}
"""Every defect, by the name that ``--defect`` takes."""

FILE_DEFECTS = frozenset(_STATIC)
"""Defects in the files of the world directory, independent of the program."""
