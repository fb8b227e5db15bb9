"""Worlds that cheat in a verified replay, or break it, are named, ended, and never equal."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path

import pytest

from clawblox.recording.replay_script import Do, ScriptStart, parse_order
from clawblox.replay import VerifiedReplay, new_recording
from clawblox.replay.plan import write_script
from tests.recording.files import reading
from tests.replay.lives import copied, verified
from tests.support.processes import marked_processes

SAYING = """
import json, os, socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

RECORDED = Path(%(recorded)r)
DIRECTORY = Path(os.environ.get("WORLD_RECORD_DIR", "nowhere"))
FILE = DIRECTORY / "recording-0001.jsonl.zst"
EQUAL = {
    "outcome": "equal", "tick": 1000, "last_tick": 1000, "events": 100, "observations": 100,
    "is_complete": True, "has_begun_again": True,
}
STATUS = {"format": "clawblox-replay-v1", "tick": 0, "is_done": True, "problem": ""}

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        global asked
        body = b"fine"
        if self.path == "/verification":
            body = json.dumps(EQUAL).encode()
        elif self.path == "/replay" and SPEAKS:
            body = json.dumps(STATUS).encode()
            STATUS["tick"] += TICKS
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

SPEAKS, TICKS = True, 0
%(body)s
address = (os.environ["WORLD_HOST"], int(os.environ["WORLD_PORT"]))
HTTPServer(address, Handler).serve_forever()
"""
"""A world that answers every request with the claim that it is equal."""


def saying(parent: Path, lives: Path, body: str = "") -> Path:
    """Write a world that forges its replay after running ``body``."""
    directory = parent / "saying"
    directory.mkdir()
    command = '[run]\ncommand = ["{python}", "world.py"]\n'
    (directory / "world.toml").write_text(f'name = "saying"\n{command}')
    recorded = str(lives / "recordings" / "recording-0001.jsonl.zst")
    text = SAYING % {"recorded": recorded, "body": textwrap.dedent(body)}
    (directory / "world.py").write_text(text)
    return directory


def verify_first(lives: Path, world: Path, stall_timeout: float = 30.0) -> VerifiedReplay:
    """Verify the first recording with another world, and check that it leaves no process."""
    run = verified(lives, number=1, world_dir=world, stall_timeout=stall_timeout)
    assert not marked_processes()
    return run.replays[0]


def test_a_world_that_says_equal_on_the_former_route_has_to_be_updated(
    lives: Path, tmp_path: Path
) -> None:
    replay = verify_first(lives, saying(tmp_path, lives, "SPEAKS = False"))
    assert replay.status == "impossible"
    assert "update the clawblox that the world uses" in replay.progress.reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "its new recording has no end"),
        ('STATUS["problem"] = "I\\x1b[0m cannot"', "cannot"),
        ('FILE.write_bytes(b"garbage" * 1000)', "it is not a recording, or damaged"),
        (
            """FILE.write_text('{"event":"start","tick":0,"time":0}\\n')""",
            "it has the older format",
        ),
        ('FILE.write_bytes(RECORDED.read_bytes()[:300])', "its new recording has no end"),
        ("FILE.symlink_to(RECORDED)", "is a symbolic link"),
        ("os.mkfifo(FILE)", "is not a regular file"),
        ("FILE.mkdir()", "is not a regular file"),
        ("os.truncate(os.open(FILE, os.O_CREAT | os.O_RDWR), 1 << 40)", "it is larger than"),
        ("DIRECTORY.rmdir()", "No such file or directory"),
        (
            'for n in range(200): (DIRECTORY / f"{n}").touch()',
            "it is larger than",
        ),
    ],
)  # fmt: skip
def test_a_world_without_a_recording_of_its_own_is_not_verified(
    lives: Path, tmp_path: Path, body: str, reason: str
) -> None:
    replay = verify_first(lives, saying(tmp_path, lives, body))
    assert (replay.status, replay.progress.divergence) == ("impossible", None)
    assert reason in replay.progress.reason


def test_a_world_that_never_writes_is_given_up(lives: Path, tmp_path: Path) -> None:
    world = saying(tmp_path, lives, 'STATUS["is_done"] = False')
    replay = verify_first(lives, world, stall_timeout=1.0)
    assert replay.progress.reason == "the replay made no progress for 1 s"


def test_a_world_that_claims_ticks_beyond_the_end_is_given_up(lives: Path, tmp_path: Path) -> None:
    world = saying(tmp_path, lives, 'STATUS["is_done"] = False; TICKS = 10**9')
    replay = verify_first(lives, world, stall_timeout=1.0)
    assert replay.progress.reason == "the replay made no progress for 1 s"


def test_a_world_that_floods_its_recording_is_stopped(
    lives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_recording, "SPARE_BYTES", 1 << 20)
    flood = """
    from threading import Thread
    def flood():
        with open(DIRECTORY / "flood", "wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
                if file.tell() > 1 << 26:
                    file.seek(0)
    STATUS["is_done"] = False
    Thread(target=flood, daemon=True).start()
    """
    replay = verify_first(lives, saying(tmp_path, lives, flood), stall_timeout=3.0)
    assert replay.status == "impossible"
    assert "it is larger than" in replay.progress.reason


# ------------------------------------------------------------- worlds on the kit that cheat

REPLAYS = 'if __name__ == "__main__":\n'


def cheating(dice: Path, parent: Path, body: str) -> Path:
    """Write a world on the kit that does something of its own before a replay."""
    code = "import json, os, sys\n    from pathlib import Path\n    script = os.environ.get"
    code = f'{REPLAYS}    {code}("WORLD_REPLAY_PATH")\n    if script:\n'
    code += textwrap.indent(textwrap.dedent(body), "        ") + "\n"
    return copied(dice, parent / "cheating", "world.py", REPLAYS, code)


def test_a_world_that_records_beyond_the_end_is_different(
    lives: Path, dice: Path, tmp_path: Path
) -> None:
    world = cheating(
        dice,
        tmp_path,
        """
        lines = Path(script).read_text().splitlines()
        end = json.loads(lines[-1])
        lines[-1] = json.dumps(end | {"tick": end["tick"] + 1000})
        Path(script).write_text("\\n".join(lines) + "\\n")
        """,
    )
    replay = verify_first(lives, world)
    found = replay.progress.divergence
    assert replay.status == "different"
    assert found is not None
    assert found.what == "the replay runs beyond the end of the recording"
    assert found.tick > replay.progress.last_tick


@pytest.mark.parametrize(
    ("kept", "what"),
    [
        ("lines[:19]", "the event 'input' does not happen"),
        ("[line for line in lines[:-1] if '\"observe\"' not in line]", "the observation of 'Ada'"),
        pytest.param(
            "[line for line in lines[:-1] if '\"frame\"' not in line]",
            "the view of a spectator",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "[line for line in lines[:-1] if '\"chat\"' not in line]",
            "the event 'chat' does not h",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_world_that_omits_part_of_the_script_is_different(
    lives: Path, dice: Path, tmp_path: Path, kept: str, what: str
) -> None:
    world = cheating(
        dice,
        tmp_path,
        f"""
        lines = Path(script).read_text().splitlines()
        Path(script).write_text("\\n".join([*{kept}, lines[-1]]) + "\\n")
        """,
    )
    replay = verify_first(lives, world)
    found = replay.progress.divergence
    assert replay.status == "different"
    assert found is not None
    assert what in found.what


def test_a_process_gets_neither_the_recording_nor_its_path(
    lives: Path, dice: Path, tmp_path: Path
) -> None:
    body = f"""
    place = {str(lives)!r}
    told = [*os.environ.values(), *sys.argv, os.getcwd(), Path(script).read_text()]
    if any(place in text for text in told):
        sys.exit(9)
    """
    assert verify_first(lives, cheating(dice, tmp_path, body)).status == "equal"


def test_a_world_that_claims_other_files_is_not_equal(
    lives: Path, dice: Path, tmp_path: Path
) -> None:
    world = copied(dice, tmp_path / "dice", "world.py", 'content = "dice"', 'content = "other"')
    run = verified(lives, number=1, world_dir=world, strict=True)
    assert [replay.status for replay in run.replays] == ["equal_unchecked_start"]
    assert run.replays[0].progress.has_other_files
    assert run.exit_status == 3


# ------------------------------------------------------------------------------ the script

RESULTS = ("refusal", "observation", "fingerprints", "state", "frame", "id", "error", "call")


def test_a_script_contains_no_result(lives: Path, tmp_path: Path) -> None:
    path = lives / "recordings" / "recording-0001.jsonl.zst"
    with reading(path) as recorded, (tmp_path / "script").open("xb") as file:
        plan = write_script(recorded, file, digest_ticks=[30])
        records = [record.fields for record in recorded.read()]
    start, *lines = (tmp_path / "script").read_bytes().splitlines(keepends=True)
    assert ScriptStart.parse(start) == ScriptStart(None, records[0]["reseed"], False, (30,))
    orders = [parse_order(line) for line in lines]
    for order in orders:
        kept = {"fingerprints", "view", "state"} if order.do is Do.FRAME else set()
        assert not order.fields.keys() & set(RESULTS) - kept
        assert all(isinstance(order.fields[name], bool) for name in kept)
    text = b"".join(lines).decode()
    assert "Bet needs a whole number" in json.dumps(records)
    assert "Bet needs a whole number" not in text
    assert (orders[-1].do, orders[-1].tick) == (Do.END, plan.end_tick)
    assert sum(order.do is Do.OBSERVE for order in orders) == sum(
        "observation" in fields for fields in records[: sum(plan.counts.values())]
    )


def test_a_copy_of_the_run_elsewhere_is_repeated_alone(
    lives: Path, dice: Path, tmp_path: Path
) -> None:
    alone = shutil.copy(lives / "recordings" / "recording-0002.jsonl.zst", tmp_path / "alone")
    run = verified(Path(alone), world_dir=dice, strict=True)
    assert [replay.status for replay in run.replays] == ["equal_unchecked_start"]
    assert (run.exit_status, run.document()["equal"]) == (3, False)
