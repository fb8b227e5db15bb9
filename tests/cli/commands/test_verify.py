"""``clawblox verify``: lines for recordings, JSON and exit statuses, without leftovers."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawblox.replay import VerifiedReplay, VerifiedRun
from clawblox.replay.kept_verification import read_verification
from clawblox.replay.results import Divergence, RecordingLink, ReplayProgress
from clawblox.replay.sources import no_recording
from clawblox.rundir.recordings import FoundRecording
from clawblox.views.formatting import format_json
from clawblox.views.verified_runs import describe_replay, sum_up
from tests.cli.conftest import Start
from tests.replay.lives import dice_world, recorded_lives
from tests.replay.trials import KEYS, ran_trial
from tests.rundir.support import make_record
from tests.support.processes import marked_processes
from tests.support.waiting import wait_until


def replayed(outcome: Any, **fields: Any) -> VerifiedReplay:
    link, checked = fields.pop("link", None), fields.pop("checked", None)
    progress = ReplayProgress(outcome, first_tick=10, **fields)
    path = Path("/runs/r1/r.jsonl.zst")
    return VerifiedReplay(path, 2, "w003", progress, 1.5, link, start_checked_by=checked)


def test_verification_result_is_one_line() -> None:
    counts: dict[str, Any] = {"tick": 383, "events": 1, "frames": 63, "is_complete": True}
    equal = replayed("equal", **counts, has_begun_again=True, checked="seed")
    assert (
        describe_replay(equal)
        == "recording 2 (w003): equal to the end: 373 ticks, 1 event, 63 frames"
    )
    given = replayed("equal", tick=12, is_complete=True)
    assert describe_replay(given).endswith(
        "equal from an unchecked start to the end: 2 ticks; its first state was taken from the"
        " recording, unchecked"
    )
    flags = {"is_complete": True, "has_other_files": True, "has_begun_again": True}
    changed = replayed("equal", tick=12, **flags)
    assert describe_replay(changed).endswith(
        "equal from an unchecked start to the end: 2 ticks; the files of the world have changed"
        " since it was recorded; so its first state was not compared"
    )
    rows = replayed("equal", tick=12, is_complete=True, has_given_rows=True, has_begun_again=True)
    assert describe_replay(rows).endswith(
        "; the rows of its data stores were taken from the recording, unchecked"
    )
    chained = replayed("equal", tick=12, is_complete=True, link=RecordingLink("continues", 10, 1))
    assert describe_replay(chained).endswith(
        "; continues recording 1 at tick 10; the start of recording 1 is unchecked, and so is this"
        " one"
    )
    killed = replayed("equal", tick=12, link=RecordingLink("continues", 10, 1), checked="earlier")
    assert describe_replay(killed) == (
        "recording 2 (w003): equal to tick 12: 2 ticks; the recording has no end, its world was"
        " killed; continues recording 1 at tick 10"
    )
    lost = replayed("equal", tick=12, has_begun_again=True, unchecked=2, checked="seed")
    assert describe_replay(lost).endswith(
        "killed; 2 later records not compared, after an input that was lost"
    )
    broken = replayed("equal", tick=12, is_complete=True, link=RecordingLink("differs", 10, 1))
    assert "does not continue recording 1, whose state at tick 10 differs" in describe_replay(
        broken
    )
    found = Divergence(120, 2.0, "the observation of 'Ada'", "player.score", 7, "x\x1b[0m")
    assert describe_replay(replayed("different", divergence=found)) == (
        "recording 2 (w003): differs at tick 120 (t = 2.000 s): the observation of 'Ada' "
        r'player.score: recorded 7, replayed "x\u001b[0m"'
    )
    older = replayed("different", divergence=found, is_of_earlier_version=True)
    assert describe_replay(older).endswith(
        "; the recording looks like one of an earlier version of clawblox, whose answers may"
        " differ: verify it with that version"
    )
    ordered = replayed("different", divergence=found, revisions=(1, 2))
    assert describe_replay(ordered).endswith(
        "; made by an older engine (revision 1; this one is 2), so whole states were not compared;"
        " that engine may run threads in another order, so a difference does not show a changed"
        " recording: verify it with the clawblox that made it"
    )
    ahead = replayed("different", divergence=found, revisions=(3, 2))
    assert "; made by a newer engine (revision 3; this one is 2)," in describe_replay(ahead)
    assert describe_replay(ahead).endswith(": update the clawblox that the world uses")
    same = replayed("equal", tick=12, is_complete=True, revisions=(1, 2), checked="seed")
    assert "equal to the end: 2 ticks; made by an older engine" in describe_replay(same)
    impossible = replayed("impossible", tick=30, reason="\x1b[31m")
    assert describe_replay(impossible).endswith(r"cannot be verified: \x1b[31m (equal to tick 30)")
    run = VerifiedRun((equal, broken, given, impossible))
    assert sum_up(run) == (
        "4 recordings in 6.0s: 1 equal, 1 equal from an unchecked start, 1 different, 1 not"
        " verified"
    )
    assert [VerifiedRun(one).exit_status for one in [(equal,), (equal, impossible)]] == [0, 3]
    assert run.exit_status == 1
    assert VerifiedRun((equal, given)).exit_status == 0
    assert VerifiedRun((equal, given), is_strict=True).exit_status == 3
    assert not VerifiedRun((equal, given)).document()["equal"]
    words = [recording["outcome"] for recording in run.document()["recordings"]]
    assert words == ["equal", "different", "equal_unchecked_start", "impossible"]


def test_long_values_are_cut_to_the_part_that_differs() -> None:
    found = Divergence(1, 0.1, "the view", "", "a" * 500 + "b", None)
    text = describe_replay(replayed("different", divergence=found))
    assert len(text) < 400
    found = Divergence(1, 0.1, "the view", "", "a" * 500 + "b", "a" * 500 + "c")
    text = describe_replay(replayed("different", divergence=found))
    assert 'ab", replayed' in text
    assert text.endswith('ac"')


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("lives")
    return recorded_lives(dice_world(directory), directory / "run", [("Bet", 3)], rounds=6)


def test_a_run_is_verified_and_its_results_are_kept(call: Start, lives: Path) -> None:
    command = call("verify", str(lives))
    assert command.wait() == 0, command.err
    shown = f"World: {lives.parent / 'dice'}\n"
    assert command.err == shown
    first, second, total = command.out.splitlines()
    assert first.startswith("recording 1: equal to tick ")
    assert second.startswith("recording 2: equal to the end: ")
    assert "continues recording 1 at tick" in second
    assert total.endswith(": 2 equal")

    left = read_verification(lives)
    assert left is not None
    assert not left.report.is_strict
    lines = [*map(describe_replay, left.report.replays), sum_up(left.report)]
    assert lines == [first, second, total]
    assert left.find_changes() == ()

    command = call("verify", str(lives), "--recording", "2", "--strict", "--json")
    document = json.loads(command.out)
    assert (document["equal"], command.err, command.wait()) == (True, shown, 0)
    assert document["strict"]
    left = read_verification(lives)
    assert left is not None
    assert json.loads(format_json(left.report.document())) == document
    assert document["recordings"][0]["start_checked_by"] == "save"
    assert [replay["number"] for replay in document["recordings"]] == [2]
    assert call("verify", str(lives), "--recording", "3").wait() == 2


@pytest.mark.thorough
def test_single_recording_has_an_unchecked_start_and_fails_with_strict(
    call: Start, lives: Path, tmp_path: Path
) -> None:
    shutil.copy(lives / "recordings" / "recording-0002.jsonl.zst", tmp_path / "alone")
    alone = [str(tmp_path / "alone"), "--world", str(lives.parent / "dice")]
    document = json.loads(call("verify", *alone, "--json").out)
    assert (document["equal"], document["recordings"][0]["outcome"]) == (
        False,
        "equal_unchecked_start",
    )
    assert call("verify", *alone, "--strict").wait() == 3
    assert document["recordings"][0]["world"] == str(lives.parent / "dice")
    assert [replay["number"] for replay in document["recordings"]] == [1]


@pytest.mark.thorough
def test_signal_ends_a_verification_without_leftovers(
    start: Start, lives: Path, tmp_path: Path
) -> None:
    line = "        self.ticks += 1\n"
    stuck = (line, f"{line}        while self.ticks > 9: pass\n")
    world, scratch = dice_world(tmp_path, stuck, name="stuck"), tmp_path / "scratch"
    scratch.mkdir()
    hanging = start("verify", str(lives), "--world", str(world), env={"TMPDIR": str(scratch)})
    wait_until(lambda: any(map(is_up, scratch.glob("*/run/logs/replay.log"))))
    hanging.send(signal.SIGINT)
    assert hanging.wait() == 128 + signal.SIGINT
    assert list(scratch.iterdir()) == []
    assert not marked_processes()


def is_up(log: Path) -> bool:
    return "Repeating" in log.read_text()


@pytest.mark.parametrize("command", ["verify", "replay"])
def test_archive_is_refused_and_its_run_named(call: Start, tmp_path: Path, command: str) -> None:
    make_record(tmp_path / "run", 0)
    file = tmp_path / "run" / "checkpoints" / "gen001.ckpt"
    file.parent.mkdir()
    file.write_bytes(b"PK")
    refused = call(command, str(file))
    assert refused.wait() == 2
    assert "is an archive of a checkpoint, not a recording" in refused.err
    assert f"hint: give its run, {tmp_path / 'run'}" in refused.err


def test_unknown_recording_number_is_refused_with_a_list_of_recordings(tmp_path: Path) -> None:
    found = [FoundRecording(tmp_path / "a"), FoundRecording(tmp_path / "b")]
    texts = [no_recording(tmp_path, 5, recordings).message for recordings in (found, found[:1])]
    assert texts == [
        f"there is no recording 5 in {tmp_path}, which has 2 recordings, 1 to 2",
        f"there is no recording 5 in {tmp_path}, which has 1 recording, number 1",
    ]
    assert no_recording(tmp_path, 5, []).hint == "start the run with record=True"


@pytest.mark.needs("curl")
@pytest.mark.thorough
def test_an_experiment_is_one_table_with_one_status(call: Start, tmp_path: Path) -> None:
    directory = ran_trial(tmp_path, prompts=[None])
    command = call("verify", str(directory), env=KEYS)
    assert command.wait() == 0, command.err
    assert command.err == f"World: {tmp_path / 'dice'}\n"
    heading, *rows, total = command.out.splitlines()
    assert heading.split() == ["CHAIN", "GEN", "ATTEMPT", "RECORDING", "OUTCOME", "LINK"]
    assert [row.split()[0] for row in rows] == ["s7", "s7", "s7-f1-1"]
    assert "continues s7/g001, attempt 2 at tick" in rows[2]
    assert total.startswith("3 recordings in ")
    assert call("verify", str(directory), "--recording", "1", env=KEYS).wait() == 2


def test_a_score_function_without_scores_is_refused(call: Start, lives: Path) -> None:
    command = call("verify", str(lives), "--score", "scores:points")
    assert command.wait() == 2
    assert "--score is the function for --scores: add that" in command.err


def test_verify_of_a_run_does_not_import_experiments() -> None:
    """Importing experiments takes longer than the replay of a short recording."""
    code = (
        "import sys, clawblox.cli.commands.verify, clawblox.cli.commands.replay; "
        "print(*(name for name in sys.modules if name.startswith('clawblox.experiment')))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []
