"""The page of an agent: reason of its stop, turns, steps, moments, and next commands."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from clawblox.agents.values import Usage
from clawblox.recording.blocks import Track
from clawblox.rundir.recordings import find_recordings
from clawblox.telemetry.log_index import LogIndex
from clawblox.web import agent_log
from clawblox.web.page import Page
from clawblox.web.pages import log as log_page
from clawblox.web.site import NoSuchPage, Site
from tests.agents.drivers.support import RECORDED
from tests.agents.trajectory.support import EventLines
from tests.recording.files import reading
from tests.support.lineages import make_restart, run_of, save_of, write_manifest
from tests.support.sampling import usually
from tests.web.agent_runs import SESSION, URL, WrittenAgent
from tests.web.replays import record, tally_world
from tests.web.sites import html_of, links_of, make, only_run, words_of

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e&\u200b'\""


@pytest.fixture
def ada(tmp_path: Path) -> WrittenAgent:
    return WrittenAgent(tmp_path)


def address_of(root: Path, query: str = "") -> tuple[Site, str]:
    site = Site(root)
    run = only_run(site)
    return site, f"run/{run.ident}/agent/{site.identify(run.agents[0].dir)}{query}"


def open_page(root: Path, query: str = "", cursors: dict[str, str] | None = None) -> Page:
    return make(*address_of(root, query), cursors)


def follow(root: Path, to: str) -> Page:
    return make(Site(root), to.removeprefix("/key/"))


def steps_of(page: Page) -> list[str]:
    return re.findall(r'class="step" id="(o\d+)"', html_of(page))


def link_named(page: Page, name: str) -> str | None:
    match = re.search(rf'<a href="([^"]+)"[^>]*>{name}</a>', html_of(page))
    return match and match[1].replace("&amp;", "&")


# -- the head ------------------------------------------------------------------------------------


def test_agent_page_head_has_the_reason_and_the_cost(tmp_path: Path) -> None:
    used = Usage(input_tokens=100, cached_tokens=300, output_tokens=50, cost_usd=3.0, turns=14)
    came = Usage(cached_tokens=100, cost_usd=1.0, turns=4)
    reason = "budget of 14 turns used up"
    ada = WrittenAgent(tmp_path, reason=reason, turn=14, usage=used, inherited=came)
    ada.begin("Begin")
    ada.say("I am done.")
    ada.finish()
    page = open_page(tmp_path)
    assert words_of(page, "why").startswith("■ stopped after turn 14: budget of 14 turns used up")
    facts = words_of(page, "facts")
    assert "Program claude 2.1.197 Model m-1 Turns 10 Output 50 Input 300 66 % cached" in facts
    assert "Cost $2.00 and $1.00 inherited" in facts
    assert f"Conversation {SESSION[:8]}" in facts
    assert "last I am done." in facts
    assert not page.is_live
    assert page.share == "#w000-id/agent/Ada"


def test_agent_page_names_an_error_missing_in_the_reason(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.begin()
    ada.events.add("limit", 1, message="limit until 2:53")
    assert "stopped on request; limit until 2:53" in words_of(open_page(tmp_path))


def test_usage_limit_is_shown_once_with_the_programs_words(tmp_path: Path) -> None:
    limit = "the usage limit is reached, until 2026-11-30T04:38:43Z"
    told = "You've hit your limit · resets 2:53am (UTC)"
    ada = WrittenAgent(tmp_path, state="failed", reason=limit, turn=1)
    ada.begin("Begin")
    ada.events.add("limit", 1, ada.end, kind="five_hour", message=limit)
    ada.events.add("error", 1, ada.end, kind="limit", message=told)
    ada.events.add("process.exited", 1, status="failed", error=limit)
    page = open_page(tmp_path)
    why = f"failed after turn 1: {limit}; in the program's words: {told} · latest"
    assert why in words_of(page, "why")
    assert f"✕ {limit} 11:10:05 ✕ in the program's words: {told}" in words_of(page, "steps")
    assert words_of(page, "steps").count(limit) == 1


def test_live_agent_page_has_the_last_action_and_the_send_command(
    ada: WrittenAgent, tmp_path: Path
) -> None:
    ada.status(state="working", turn=1)
    ada.begin("Begin")
    ada.call(command="sleep 60")
    page = open_page(tmp_path)
    assert page.is_live
    assert "● working in turn 1: a turn is under way" in words_of(page, "why")
    assert "now ● Bash sleep 60" in words_of(page, "facts")
    assert f"clawblox agent send {ada.directory.path} TEXT" in words_of(page, "facts")
    assert "◐ turn 1 is under way" in words_of(page, "end")
    assert "→ no answer yet" in words_of(page, "steps")


def test_checkpoint_lines_have_the_command_that_continues_from_them(tmp_path: Path) -> None:
    ada = WrittenAgent(tmp_path)
    saved = save_of("w000", 5)
    archive = {**saved, "path": "checkpoints/t5.ckpt", "created_at": "2026-11-22T11:10:03Z"}
    gone = {**archive, "path": "checkpoints/t6.ckpt", "removed_at": "2026-11-22T11:11:00Z"}
    for one in (archive, gone):
        del one["instance"]
    document = {"schema_version": 1, "run": run_of("w000"), "checkpoints": [saved, archive, gone]}
    write_manifest(tmp_path, document)
    ada.begin("Begin")
    ada.finish()
    ada.begin()
    ada.say("I go on.")
    ada.finish()
    page = open_page(tmp_path)
    steps = words_of(page, "steps")
    line = re.search(
        r"told Begin.*○ checkpoint t5.ckpt at 5.00 s (clawblox run \S+ --resume \S+)", steps
    )
    assert line is not None, steps
    assert line[1].endswith("checkpoints/t5.ckpt")
    assert "t6.ckpt at 5.00 s, removed" in steps
    assert "w000-5.json" not in steps
    assert "Continue from its latest checkpoint clawblox run" in words_of(page, "facts")
    assert "checkpoint t5.ckpt" in words_of(page, "strip")


def test_the_strip_shows_when_the_world_died_and_was_started_again(
    ada: WrittenAgent, tmp_path: Path
) -> None:
    died = make_restart("w000", 5, 3, by="policy")
    document = {"run": run_of("w000"), "checkpoints": [save_of("w000", 3)], "restarts": [died]}
    write_manifest(tmp_path, {"schema_version": 1, **document})
    ada.begin("Begin")
    strip = words_of(open_page(tmp_path), "strip")
    assert "the world w000, life 1: killed by SIGKILL" in strip
    assert "the world w000, life 2: restart" in strip


# -- steps ---------------------------------------------------------------------------------------


def test_world_calls_are_shown_with_their_changes(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.begin("Begin")
    ada.call(command=f"curl -s {URL}/api.md")
    ada.answer("# Marbles")
    ada.steer(0.5, 23)
    ada.steer(1, 23.25)
    ada.call(command="ls -la")
    ada.answer("ls: no", is_error=True)
    steps = words_of(open_page(tmp_path), "steps")
    assert "reads api.md 9 B → # Marbles" in steps
    assert (
        'acts Steer {"direction": [1.0, 0]}' in steps or 'acts Steer {"direction": [1, 0]}' in steps
    )
    assert "→ time 23 → 23.25 · player.x 0.5 → 1" in steps
    assert "Bash ls -la 6 B ✕ ls: no" in steps


def test_window_shows_changes_since_observations_before_it(
    ada: WrittenAgent, tmp_path: Path
) -> None:
    ada.begin("Begin")
    ada.steer(0.5, 23)
    second = ada.steer(1, 23.25)
    steps = words_of(open_page(tmp_path, f"?at={second}"), "steps")
    assert "→ time 23 → 23.25 · player.x 0.5 → 1" in steps
    assert "0.5, 0" not in steps


def test_continue_messages_are_shown_in_words_and_others_marked(
    ada: WrittenAgent, tmp_path: Path
) -> None:
    for prompt in ("Begin", None, "Come back <to> the camp"):
        ada.begin(prompt) if prompt else ada.begin()
        ada.say("Yes.")
        ada.finish()
    page = open_page(tmp_path)
    steps = words_of(page, "steps")
    assert steps.count("told") == 2
    assert "told Come back <to> the camp" in steps
    assert steps.count("asked to continue") == 1
    assert "Please don't stop" not in html_of(page)
    outline = words_of(page, "outline")
    assert [word for word in outline.split() if word.isdigit()] == ["1", "2", "3"]


def test_long_texts_are_cut_with_a_link_to_the_full_text(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.begin("Begin")
    long = "".join(f"word {number} " for number in range(40_000))
    said = ada.say(long)
    ada.call(command="cat notes")
    ada.answer(json.dumps({"notes": ["<b>"] * 30_000}))
    page = open_page(tmp_path, f"?at={said}")
    assert len(html_of(page)) < 20_000
    (to,) = [to for to in links_of(page) if "what=message" in to]
    assert f"at={said}&" in to
    seen, part = "", follow(tmp_path, to)
    while True:
        match = re.search(r"<pre>(.*)</pre>", html_of(part), re.S)
        assert match is not None
        seen += match[1]
        later = link_named(part, "↓ later")
        if later is None:
            break
        part = follow(tmp_path, later)
    assert seen == long
    (to,) = [to for to in links_of(open_page(tmp_path)) if "what=result-0" in to]
    assert "notes: 30000 items" in words_of(follow(tmp_path, to))
    with pytest.raises(NoSuchPage, match="no such text"):
        follow(tmp_path, to.replace("result-0", "result-7"))


def test_short_json_is_indented(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.begin("Begin")
    ada.call("Read", path="a.json")
    ada.answer('{"a": {"b": "%s"}, "c": 1}' % ("x" * 120))
    assert f'<pre>a:\n  b: "{"x" * 120}"\nc: 1</pre>' in html_of(open_page(tmp_path))


@pytest.mark.parametrize(
    "where", ["say", "think", "name", "argument", "answer", "prompt", "reason"]
)
def test_hostile_words_are_escaped_everywhere(
    ada: WrittenAgent, tmp_path: Path, where: str
) -> None:
    ada.begin(HOSTILE if where == "prompt" else "Begin")
    if where == "say":
        ada.say(HOSTILE)
    if where == "think":
        ada.think(HOSTILE)
    ada.call(
        HOSTILE if where == "name" else "Bash", command=HOSTILE if where == "argument" else "x"
    )
    ada.answer(HOSTILE if where == "answer" else "fine")
    if where == "reason":
        ada.status(state="failed", reason=HOSTILE)
    text = html_of(open_page(tmp_path))
    assert "<script" not in text
    for char in "\x1b\u202e\u200b":
        assert char not in text
    assert "alert(1)" in text


def test_agent_log_line_of_8_mb_is_cut(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.begin("Begin")
    long = ada.say("x" * (7 << 20))
    ada.write({"type": "assistant", "filler": "y" * (9 << 20)})
    ada.say("after")
    page = open_page(tmp_path)
    assert len(html_of(page)) < 30_000
    assert "after" in words_of(page, "steps")
    start = open_page(tmp_path, f"?at={long}")
    assert "all 7.3 MB" in words_of(start, "steps")
    assert len(html_of(start)) < 30_000


def test_a_window_has_no_more_steps_than_a_page_can_show(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.begin("Begin")
    for number in range(500):
        ada.call(command=f"true {number}")
        ada.answer("")
    page = open_page(tmp_path)
    assert 10 < len(steps_of(page)) <= 120
    assert "true 499" in words_of(page, "steps")


def test_folded_texts_of_a_window_are_bounded_together(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.begin("Begin")
    for number in range(100):
        ada.call(command=f"cat {number}")
        ada.answer(f"{number} " + "<&>" * 230)
    page = open_page(tmp_path)
    assert len(steps_of(page)) == 101
    assert len(html_of(page)) < 250_000
    assert html_of(page).count("<pre>") >= 100


# -- places --------------------------------------------------------------------------------------


def write_slowly(ada: WrittenAgent, monkeypatch: pytest.MonkeyPatch, minutes: int) -> list[int]:
    """Let a step arrive each minute, with an index; return the offset of each step."""
    import os

    index, starts = LogIndex(ada.log), []
    ada.begin("Begin")
    for minute in range(minutes):
        starts.append(ada.say(f"minute {minute}."))
        at = 1_795_345_802_000_000_000 + minute * 60 * 10**9  # 2026-11-22T11:10:02Z
        os.utime(ada.log, ns=(at, at))
        index._looked_at = 0
        index.note_length()
    return starts


def test_page_parameters_for_minutes_times_and_bytes_select_steps(
    ada: WrittenAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = write_slowly(ada, monkeypatch, 20)

    def first(query: str) -> str:
        return re.sub(r".*?(minute \d+\.).*", r"\1", words_of(open_page(tmp_path, query), "steps"))

    assert first("?minute=12") == "minute 12."
    assert first("?minute=2.5") == "minute 3."
    assert first("?utc=2026-11-22T11:17:02.000Z") == "minute 7."
    assert first("?since=2026-11-22T11:17:02Z") == "minute 7."
    assert first(f"?at={starts[4]}") == "minute 4."
    assert first("?since=1000d") == "minute 0."
    for nothing in ("?minute=x", "?since=tomorrow", "?at=-3", "?t=3", "?minute=1e9", ""):
        assert first(nothing) == "minute 0.", nothing


def test_a_long_pause_is_folded_into_a_labelled_gap(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.begin("Begin")
    ada.finish()
    ada.events.second = 50
    first = ada.directory.events_file.read_text()
    ada.begin()
    ada.finish()
    later = ada.directory.events_file.read_text().removeprefix(first).replace("T11:", "T17:")
    ada.directory.events_file.write_text(first + later)
    assert "6h without a turn" in words_of(open_page(tmp_path), "strip")
    assert "No recording: this axis shows only host time." in words_of(open_page(tmp_path))


@pytest.mark.parametrize("size", usually([1, 400, 1500, 1 << 20], 1500))
def test_windows_cover_every_step_once(
    ada: WrittenAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    for turn in range(4):
        ada.begin("Begin" if not turn else f"Turn {turn}")
        for number in range(5):
            ada.think(f"thought {turn}.{number}.")
            ada.steer(number, turn * 5 + number)
            ada.say(f"word {turn}.{number}.")
        ada.finish()
    every = [f"{kind} {turn}.{n}." for turn in range(4) for n in range(5)
             for kind in ("thought", "word")]  # fmt: skip
    monkeypatch.setattr(agent_log, "_WINDOW_BYTES", size)

    def read_all(page: Page, way: str) -> list[str]:
        pages = [page]
        while (to := link_named(pages[-1], way)) is not None:
            pages.append(follow(tmp_path, to))
        return [words_of(page, "steps") for page in pages]

    later = read_all(open_page(tmp_path, "?at=0"), "↓ later")
    earlier = read_all(open_page(tmp_path), "↑ earlier")[::-1]
    for texts in (later, earlier):
        found = re.findall(r"(?:thought|word) \d\.\d\.", " ".join(texts))
        assert sorted(found) == sorted(every)
        assert len(re.findall(r"acts Steer", " ".join(texts))) == 20


def test_search_results_link_to_the_matching_steps(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.begin("Begin")
    said = ada.say('The "Needle" is <here>.')
    ada.call(command="grep needle notes")
    ada.answer("no NEEDLE")
    ada.finish("The needle's eye.")
    form = re.search(r'name="place" value="([^"]+)"', html_of(open_page(tmp_path)))
    assert form is not None
    page = follow(tmp_path, f"/key/search?q=needle&place={form[1]}")
    found = words_of(page, "found")
    place, time = "agent Ada turn 1", r"2026-11-22 11:10:\d\d UTC"
    for words in (
        'says The " Needle " is <here>.',
        "Bash grep needle notes",
        "→ no NEEDLE",
        """result: "The needle 's eye.""",
    ):
        assert re.search(f"{place}( {time})? {re.escape(words)}", found), found
    assert "uuid" not in found
    assert "4 results shown." in found
    to = next(to for to in links_of(page) if to.endswith(f"?at={said}#o{said}"))
    assert steps_of(follow(tmp_path, to.partition("#")[0]))[0] == f"o{said}"


def test_steps_have_the_simulated_times_of_their_inputs_in_the_recording(tmp_path: Path) -> None:
    actions = [("Add", 2), ("Add", 3), ("Keep", {"x": 1}), ("Add", 2), ("Add", 3)]
    run = record(tally_world(tmp_path, "x"), tmp_path / "runs" / "run", *actions)
    (found,) = find_recordings(run)
    with reading(found.path) as recording:
        events = [*recording.read_track(Track.INPUTS)]
    inputs = [one for one in events if one.fields["event"] == "input"]
    ada = WrittenAgent(run, "Rocky")
    ada.begin("Begin")
    for sent in inputs:
        later = datetime.fromisoformat(sent.moment.utc) + timedelta(microseconds=300)
        ada.time = later.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = json.dumps({"type": sent.fields["action"], "data": sent.fields["data"]})
        ada.call(command=f"curl -s {URL}/input -d '{body}'")
        ada.answer("{}")
    ada.call(command=f"curl -s {URL}/observe")
    ada.answer('{"time": 0.25, "sum": 1}')
    shown = re.findall(r'#t=[\d.]+" class="muted">([\d.]+) s<', html_of(open_page(run.parent)))
    assert len(inputs) == len(actions)
    assert shown == [*(f"{sent.moment.time:.2f}" for sent in inputs), "0.25"]


@pytest.mark.parametrize("why", ["time", "events"])
def test_search_shows_raw_lines_without_readable_steps(
    ada: WrittenAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    ada.begin("Begin")
    said = ada.say("The needle.")
    if why == "time":
        monkeypatch.setattr(log_page, "_WORDS_SECONDS", 0.0)
    else:
        with ada.directory.events_file.open("a") as file:
            file.write('{"schema_version": 99, "type": "usage"}\n')
    page = follow(tmp_path, "/key/search?q=needle")
    assert '"text": "The needle ."' in words_of(page, "found")
    assert any(to.endswith(f"?at={said}#o{said}") for to in links_of(page))


# -- logs that are not whole ---------------------------------------------------------------------


def test_page_of_an_agent_without_a_log_has_a_note(tmp_path: Path) -> None:
    ada = WrittenAgent(tmp_path)
    shutil.rmtree(ada.log.parent)
    ada.directory.events_file.unlink()
    page = open_page(tmp_path)
    assert "stopped on request" in words_of(page, "why")
    assert "0 steps" in words_of(page, "steps")


def test_end_of_an_interrupted_turn_is_shown_in_that_turn(
    ada: WrittenAgent, tmp_path: Path
) -> None:
    ada.begin("Begin")
    ada.events.add("process.exited", 0, status="failed", error="exit status 3")
    ada.turn -= 1
    ada.events.add("process.started", 0, ada.end, pid=2, version="2.1.197")
    ada.begin("Begin")
    ada.say("I am back.")
    steps = words_of(open_page(tmp_path), "steps")
    assert re.search(r"told Begin .*✕ exit status 3 Turn 1 .*told Begin .*I am back", steps), steps
    assert "cut off" in steps


def test_incomplete_line_and_cut_log_are_shown_up_to_the_cut(
    ada: WrittenAgent, tmp_path: Path
) -> None:
    ada.begin("Begin")
    ada.say("whole")
    with ada.log.open("a") as file:
        file.write('{"type": "assistant", "mess')
    assert "whole" in words_of(open_page(tmp_path), "steps")
    with ada.log.open("r+b") as log:
        log.truncate(20)
    assert "0 B to" in words_of(open_page(tmp_path), "steps")


def test_agent_files_outside_the_directory_are_not_read(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.begin("Begin")
    ada.say("secret")
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    ada.log.parent.rename(outside)
    ada.log.parent.symlink_to(outside)
    text = words_of(open_page(tmp_path))
    assert "secret" not in text
    assert "is not below" in text


def test_page_of_a_moved_run_is_complete(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.begin("Begin")
    ada.say("I was moved.")
    ada.finish()
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for child in [child for child in tmp_path.iterdir() if child != moved]:
        child.rename(moved / child.name)
    assert "I was moved." in words_of(open_page(tmp_path), "steps")


@pytest.mark.parametrize(
    ("driver", "log", "words"),
    [
        ("codex", "codex-0.169-first.log", "echo hi"),
        ("kimi", "kimi-2.1.0-first.log", ""),
        ("opencode", "opencode-1.18.33-first.log", ""),
        ("codex", "codex-0.169-refused.log", "✕"),
    ],
)
def test_logs_of_other_programs_are_read(tmp_path: Path, driver: str, log: str, words: str) -> None:
    ada = WrittenAgent(tmp_path, driver=driver)
    ada.events.add("turn.started", 1, prompt="Begin")
    shutil.copyfile(RECORDED / log, ada.log)
    page = open_page(tmp_path)
    assert len(steps_of(page)) > 1
    assert "told Begin" in words_of(page, "steps")
    assert words in words_of(page, "steps")


# -- while it works ------------------------------------------------------------------------------


def poll(root: Path, page: Page, keep: Callable[[Page], Page] = lambda page: page) -> Page:
    """Request the changes since a page, like the browser."""
    cursors = {part.name: part.cursor for part in page.parts if part.cursor}
    return keep(open_page(root, cursors=cursors))


def test_new_steps_are_appended_once(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.status(state="working", turn=1)
    ada.begin("Begin")
    ada.steer(1, 23)
    page = open_page(tmp_path)
    nothing = poll(tmp_path, page)
    assert words_of(nothing, "steps") == ""
    assert [part.version for part in nothing.parts if part.name == "steps"] == [
        part.version for part in page.parts if part.name == "steps"
    ]
    ada.call(command=f'curl -s {URL}/input -d \'{{"type": "Jump"}}\'')
    grown = poll(tmp_path, page)
    assert words_of(grown, "steps").startswith("11:10")
    assert "acts Jump" in words_of(grown, "steps")
    assert "Steer" not in words_of(grown, "steps")
    ada.answer(json.dumps({"time": 24, "player": {"x": 1}}))
    answered = poll(tmp_path, grown)
    assert "→ time 23 → 24" in words_of(answered, "steps")
    assert "Jump" not in words_of(answered, "steps")
    ada.finish()
    ada.begin()
    ada.say("more")
    last = poll(tmp_path, answered)
    assert "Turn 2" in words_of(last, "steps")
    assert words_of(poll(tmp_path, last), "steps") == ""


def test_half_written_line_is_shown_when_it_is_complete(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.status(state="working", turn=1)
    ada.begin("Begin")
    page = open_page(tmp_path)
    ada.say("one")
    content = ada.log.read_bytes()
    ada.log.write_bytes(content[:-9])
    assert words_of(poll(tmp_path, page), "steps") == ""
    ada.log.write_bytes(content)
    assert words_of(poll(tmp_path, page), "steps").endswith("one")


def test_an_earlier_window_does_not_grow(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.status(state="working", turn=1)
    ada.begin("Begin")
    for number in range(200):
        ada.say(f"{number} {'x' * 2000}")
    page = open_page(tmp_path, "?at=0")
    (steps,) = [part for part in page.parts if part.name == "steps"]
    later = open_page(tmp_path, "?at=0", {"steps": steps.cursor})
    assert words_of(later, "steps") == ""
    assert [part.version for part in later.parts] == [part.version for part in page.parts]


def test_hostile_cursors_and_ids_are_refused_or_ignored(ada: WrittenAgent, tmp_path: Path) -> None:
    ada.begin("Begin")
    ada.say("here")
    for cursor in ("-1", "x", "9" * 30, "1e3", ""):
        assert "here" in words_of(open_page(tmp_path, cursors={"steps": cursor}), "steps")
    site, address = address_of(tmp_path)
    for wrong in (f"{address}0", address.replace("agent/", "agent/..%2f")):
        with pytest.raises(NoSuchPage):
            make(site, wrong)


def test_many_turns_are_drawn_in_columns_and_listed_in_part(
    ada: WrittenAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(400):
        ada.begin()
        ada.finish()
    text = ada.directory.events_file.read_text()
    lines = [
        re.sub(r"T11:10:\d+", f"T{11 + n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}", line)
        for n, line in enumerate(text.splitlines())
    ]
    ada.directory.events_file.write_text("\n".join(lines) + "\n")
    page = open_page(tmp_path)
    assert "400 turns over time" in words_of(page, "strip")
    assert html_of(page).count('class="area"') <= 60
    assert words_of(page, "outline").endswith("later") or "earlier" in words_of(page, "outline")
    assert len(html_of(page)) < 150_000


def test_steps_from_an_archive_keep_only_their_own_times(tmp_path: Path) -> None:
    ada = WrittenAgent(tmp_path)
    ada.begin("Begin")
    told = ada.say("I am the parent.")
    ada.finish()
    ada.directory.events_file.unlink()  # an archive contains the log, but not the events
    ada.events, ada.turn = EventLines(ada.directory.events_file, SESSION, 30), 0
    LogIndex(ada.log).begin_run()
    ada.events.add("sandbox", 0, level="none")
    ada.events.add("process.started", 0, ada.end, pid=2, version="2.1.197")
    ada.begin("Go on")
    own = ada.say("I am the branch.")
    ada.finish()
    LogIndex(ada.log).note_length()
    page = html_of(open_page(tmp_path, "?at=0"))
    times = [re.findall(rf'href="#o{at}">(.*?)</a>', page) for at in (told, own)]
    assert times[0] == ["inherited"]
    assert "datetime=" in times[1][0]
    found = words_of(follow(tmp_path, "/key/search?q=parent"), "found")
    assert "agent Ada inherited says I am the parent ." in found
    assert "1 result shown." in found
