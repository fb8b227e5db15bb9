"""The orchard conforms, and a direct test detects each of its defects, without the checks."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from clawblox import World
from clawblox.errors import ConfigError
from tests.conformance import looks
from tests.conformance.looks import Bed
from tests.support.provable import ACTIONS, PROVABLE, make_provable_world, provable_command
from tests.support.waiting import HANG_S
from tests.worlds.defects import CLOCKS, DEFECTS, FILE_DEFECTS

Look = Callable[[Bed], bool]

LOOKS: Mapping[Look, tuple[str, ...]] = {
    looks.agent_ids_continue: ("restarts-agent-ids",),
    looks.keeps_sessions: ("loses-last-session", "needs-rejoin"),
    looks.keeps_chat: ("loses-chat", "restarts-chat-ids"),
    looks.snapshot_needs_token: ("snapshot-open", "any-token-accepted"),
    looks.token_has_one_form: ("token-in-query", "token-as-bearer"),
    looks.sessions_are_needed: ("observe-without-session",),
    looks.unknown_sessions_are_refused: (
        "observe-unknown-session",
        "input-unknown-session",
        "unknown-joins",
    ),
    looks.sessions_are_fresh: ("sessions-from-saved-key",),
    looks.foreign_hosts_are_refused: ("foreign-host-accepted",),
    looks.foreign_origins_are_refused: ("foreign-origin-accepted",),
    looks.players_are_limited: ("no-max-players",),
    looks.bodies_are_limited: ("unbounded-body",),
    looks.sessions_are_random: ("sessions-count",),
    looks.refuses_corrupt: ("corrupt-starts-fresh", "refuses-late", "refuses-without-error"),
    looks.refuses_empty: ("empty-starts-fresh",),
    looks.refuses_truncated: ("truncated-starts-fresh",),
    looks.refuses_foreign: ("foreign-accepted",),
    looks.refuses_newer: ("newer-accepted",),
    looks.refuses_missing: ("missing-starts-fresh",),
    looks.headers_are_stable: ("date-header", "request-counter"),
    looks.chat_has_simulated_time: ("chat-host-time",),
    looks.observations_show_no_host: (
        "observation-host-time",
        "observation-host-date",
        "observation-pid",
        "observation-launch-id",
        "observation-path",
        "observation-token",
        "observation-without-time",
    ),
    looks.files_conform: (
        "broken-world-toml",
        "misspelled-key",
        "api-empty",
        "api-mentions-snapshot",
        "api-without-actions",
    ),
    looks.gets_ready: ("exits-at-start",),
    looks.has_alias: ("alias-missing",),
    looks.listens_on_its_host: ("listens-everywhere",),
    looks.joins_differ: ("join-shares-session",),
    looks.rejoins: ("rejoin-is-new",),
    looks.answers_are_json: ("observation-nan", "input-answers-text"),
    looks.malformed_is_refused: ("malformed-ends-world", "malformed-is-500"),
    looks.chat_is_heard: ("chat-is-private",),
    looks.leaving_ends_sessions: ("leave-keeps-session",),
    looks.connections_are_kept: ("refused-body-unread", "join-body-unread"),
    looks.base_path_is_used: ("ignores-base-path",),
    looks.flags_override: ("ignores-port-flag",),
    looks.snapshot_has_header: (
        "snapshot-without-format",
        "snapshot-without-time",
        "snapshot-has-nan",
        "snapshot-without-identity",
    ),
    looks.files_have_no_token: ("log-has-token", "file-had-token"),
    looks.observations_are_small: ("observation-too-large",),
    looks.snapshots_do_not_grow: ("snapshot-keeps-history",),
    looks.snapshots_have_no_secrets: (
        "snapshot-has-token",
        "snapshot-has-environment",
        "snapshot-has-path",
    ),
    looks.obeys_sigterm: ("ignores-sigterm",),
    looks.leaves_nothing: ("leaves-file", "leaves-daemon"),
    looks.reports_no_errors: ("script-errors",),
}
"""The defects that each look must detect, with both clocks."""

LOCKSTEP: Mapping[Look, tuple[str, ...]] = {
    looks.continues_exactly: (
        "loses-chance",
        "rounds-floats",
        "loses-impulse",
        "restores-late",
        "unsaved-fatigue",
        "luck-by-entropy",
        "loses-streak",
        "loses-carried",
    ),
    looks.restores_are_equal: ("reseeds-on-restore",),
    looks.restores_again: ("doubles-count", "stale-agents"),
    looks.joins_are_equal: ("joiner-by-entropy",),
    looks.snapshots_are_equal: ("reverses-sessions",),
    looks.saves_change_nothing: ("save-draws", "save-ticks", "save-steps"),
}

REALTIME: Mapping[Look, tuple[str, ...]] = {
    looks.runs_on_exactly: ("loses-chance", "rounds-floats", "loses-impulse", "restores-late"),
    looks.restores_run_equally: ("reseeds-on-restore",),
    looks.saves_change_no_tick: ("save-draws", "save-steps"),
    looks.saves_keep_waiting_inputs: ("save-clears-pending",),
    looks.restores_waiting_inputs: ("loses-pending",),
    looks.snapshots_run_on_exactly: (
        "doubles-count",
        "stale-agents",
        "reverses-sessions",
    ),
    looks.inputs_land_equally: ("luck-by-entropy", "unsaved-fatigue"),
}

OFTEN = {"save-clears-pending", "loses-pending"}
"""Defects that are looked at in real time by default: the others share the code of lockstep, of
which every fifth look is tried by default."""


def seen(table: Mapping[Look, tuple[str, ...]]) -> set[str]:
    return {name for names in table.values() for name in names}


def cases(clock: str) -> list[object]:
    table = {**LOOKS, **(LOCKSTEP if clock == "lockstep" else REALTIME)}
    is_default = {names[0] for names in [*table.values()][::5]} if clock == "lockstep" else OFTEN
    return [
        pytest.param(
            clock,
            look,
            name,
            id=f"{clock}-{name}",
            marks=() if name in is_default else pytest.mark.thorough,
        )
        for look, names in table.items()
        for name in names
    ]


def twin_cases(clock: str) -> list[object]:
    table = {**LOOKS, **(LOCKSTEP if clock == "lockstep" else REALTIME)}
    often = {look for look in REALTIME if OFTEN & {*REALTIME[look]}}
    is_default = {*[*table][::5]} if clock == "lockstep" else often
    return [
        pytest.param(
            clock,
            look,
            id=f"{clock}-{look.__name__}",
            marks=() if look in is_default else pytest.mark.thorough,
        )
        for look in table
    ]


@pytest.mark.parametrize(
    ("clock", "look"), [case for clock in CLOCKS for case in twin_cases(clock)]
)
def test_orchard_world_passes_its_own_checks(tmp_path: Path, clock: str, look: Look) -> None:
    with contextlib.closing(Bed(tmp_path, clock, None)) as bed:
        assert look(bed)


@pytest.mark.parametrize(
    ("clock", "look", "defect"), [case for clock in CLOCKS for case in cases(clock)]
)
def test_defect_of_the_orchard_is_visible(
    tmp_path: Path, clock: str, look: Look, defect: str
) -> None:
    with contextlib.closing(Bed(tmp_path, clock, defect)) as bed:
        assert not look(bed)


def test_each_defect_is_tested_with_the_clocks_of_the_table() -> None:
    assert seen(LOOKS) | seen(LOCKSTEP) == {n for n in DEFECTS if DEFECTS[n].lockstep}
    assert seen(LOOKS) | seen(REALTIME) == {n for n in DEFECTS if DEFECTS[n].realtime}


def test_the_program_has_the_defects_of_the_table() -> None:
    in_program = set(re.findall(r'has\("([a-z0-9-]+)"\)', PROVABLE.read_text()))
    assert in_program == DEFECTS.keys() - FILE_DEFECTS


def test_the_orchard_starts_fast_because_it_imports_little(tmp_path: Path) -> None:
    command = [*provable_command("lockstep", "exits-at-start")]
    command[1:1] = ["-X", "importtime"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert {"socket", "argparse"} <= imported
    assert not {"http", "email", "ssl", "asyncio", "subprocess", "random"} & imported


def test_orchard_world_toml_can_declare_actions(tmp_path: Path) -> None:
    directory = make_provable_world(tmp_path, clock="realtime", declares_actions=True)
    assert World(dir=directory).config["conformance"] == {"actions": list(ACTIONS)}
    assert '"type"' not in (directory / "API.md").read_text()


def test_broken_orchard_world_toml_is_refused(tmp_path: Path) -> None:
    directory = make_provable_world(tmp_path, clock="lockstep", defect="broken-world-toml")
    with pytest.raises(ConfigError, match="max_players"):
        World(dir=directory)
