"""The comparison of two runs or instances."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentRecord
from clawblox.agents.values import Usage
from clawblox.recording import FORMAT
from clawblox.recording.blocks import Track
from clawblox.web.first_differences import FirstDifference, find_call_differences
from clawblox.web.site import NoSuchPage, Site
from tests.agents.trajectory.support import make_agent, write_events
from tests.golden.test_golden_experiments import V1_SCORED
from tests.recording.files import Recorded
from tests.support.lineages import make_restart, run_of, save_of, write_manifest, write_run
from tests.web.drawing import draw, make
from tests.web.families import find_run, moved, saves_of
from tests.web.pages.test_save import part
from tests.web.sites import write_log

VERSION = "2.1.330"
HOSTILE = "<script>alert(1)</script>"
NAMES = ("Eko", "run-a", "run-b")


def instances(site: Site, name: str) -> dict[str, str]:
    """Return the names in addresses of the instances of a run, from the form."""
    options = re.findall(r'value="(\w{10})"[^>]*>([^<]+)<', draw(site, "compare"))
    return {words.split(" · ")[1]: ident for ident, words in options if f"{name} · " in words}


# -- recordings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_moved", [False, True])
def test_fork_and_parent_first_differ_at_an_action(
    family: Path, tmp_path: Path, is_moved: bool
) -> None:
    name = "first"
    if is_moved:
        name = "other/name"
        family = moved(family, tmp_path / "lab", ("first", name))
    site = Site(family)
    idents = instances(site, name)
    text = draw(site, "compare", a=idents["alpha"], b=idents["w000"])
    *_, (_, save) = saves_of(site, name, "alpha")
    parting = part(text, "parting")
    assert re.search(rf"They fork at {save.name} of {name} at \d+\.\d s\b", parting)
    action, observation = parting.split("First observation that differs: ")
    assert "First action that differs: Ada data, by their recordings" in action
    assert re.search(r"A \d+\.\d\d s, 20\S+Z [34] B \d+\.\d\d s, 20\S+Z 99", action)
    assert observation.startswith("Ada bets, by their recordings")
    assert f'href="/run/{find_run(site, name).ident}/replay/' in text
    assert f'<a href="/run/{find_run(site, name).ident}/save/{site.identify(save)}">' in text
    assert text.count("Axis of time of") == 2
    assert "One axis from the fork on" in part(text, "axis")
    assert "tool calls" not in parting


def test_branches_of_an_archive_are_compared_from_the_archive_on(tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    archive = {"path": "checkpoints/gen001.ckpt", "time": 1.0, "created_at": "2026-06-23"}
    more = {"checkpoints": [save_of("first", 1), archive]}
    write_manifest(lab / "first", {"schema_version": 1, "run": run_of("first"), **more})
    branch = {
        "resume_from": str(lab / "first/checkpoints/first-1.json"),
        "resume_archive": str(lab / "first/checkpoints/gen001.ckpt"),
    }
    fork = {"resume_from": str(lab / "a/checkpoints/a-2.json")}
    for name, began in (("a", branch), ("b", branch), ("c", fork)):
        restarts = [make_restart(name, 30, 2)]
        document = {"run": run_of(name, **began), "checkpoints": [save_of(name, 2)]}
        write_manifest(lab / name, {"schema_version": 1, **document, "restarts": restarts})
    for name in ("first", "a", "b", "c"):
        started = {"started_at": f"2026-06-22T18:00:0{len(name)}Z", "run_id": f"{name}-run"}
        write_log(lab / name, name, b"", **started)
    site = Site(lab)
    runs = {run.name: run.ident for run in site.runs()}
    text = draw(site, "compare", a=runs["a"], b=runs["b"])
    source = "gen001.ckpt of first at 1.0 s"
    assert f"They fork at {source}. No action" in part(text, "parting")
    facts = part(text, "facts")
    assert f"Came from {source} {source}" in facts
    assert "Started 2026-06-22 18:00:01 UTC 2026-06-22 18:00:01 UTC" in facts
    assert 'data-fixed=""' in text
    page = f"/run/{runs['first']}/save/{site.identify(lab / 'first/checkpoints/gen001.ckpt')}"
    assert text.count(f'href="{page}"') == 3
    text = draw(site, "compare", a=runs["a"], b=runs["c"])
    assert "They fork at a-2.json of a at 2.0 s" in part(text, "parting")


def test_compared_number_has_a_line_for_each_side(family: Path) -> None:
    site = Site(family)
    idents = instances(site, "first")
    text = draw(site, "compare", a=idents["alpha"], b=idents["w000"])
    number = text[text.index('<section id="number"') : text.index('<section id="prompts"')]
    assert number.count('class="number"') == 2
    assert re.search(r"At the end A [\d.]+ and B [\d.]+, as \w+ saw it\.", number)


def test_label_of_the_higher_line_is_above(tmp_path: Path) -> None:
    for name, gain in (("a", 1), ("b", 2)):
        home = tmp_path / "lab" / name / "worlds" / name
        home.mkdir(parents=True)
        recorded = Recorded(home)
        recorded.add(Track.INPUTS, 0, event="join", agent_id="1", name="Ada")
        for tick in range(1, 4):
            recorded.observe(tick, "1", {"score": gain * tick})
        recording = {"path": str(recorded.close()), "format": FORMAT}
        document = {"run": run_of(name), "recordings": [recording]}
        write_run(tmp_path / "lab" / name, {name: document})
    site = Site(tmp_path / "lab")
    text = draw(site, "compare", a=find_run(site, "a").ident, b=find_run(site, "b").ident)
    assert re.findall(r'<text [^>]*y="([\d.]+)"[^>]*>([AB] \d)<', text) == [
        *(("38.0", "A 3"), ("20.0", "B 6"))
    ]


def test_the_last_saves_at_the_same_simulated_time_are_compared(tmp_path: Path) -> None:
    for name, times in (("a", (1, 2, 3)), ("b", (1, 2, 4))):
        document = {"run": run_of(name), "checkpoints": [save_of(name, time) for time in times]}
        run = write_run(tmp_path / "lab" / name, {name: document})
        for time in times:
            path = run / "worlds" / name / "checkpoints" / f"{name}-{time}.json"
            path.parent.mkdir(exist_ok=True)
            world = {"time": time, "value": name, "evil": HOSTILE}
            path.write_text(json.dumps({**world, "x": 1.00001 if name == "a" else 1.00002}))
    site = Site(tmp_path / "lab")
    text = draw(site, "compare", a=find_run(site, "a").ident, b=find_run(site, "b").ident)
    assert "Saves a-2.json and b-2.json, at 2.0 s." in part(text, "world")
    assert 'value "a" "b"' in part(text, "world")
    assert "x 1.00001 1.00002" in part(text, "world")
    assert "in 2 paths." in part(text, "world")
    path.write_text("[" * 100_000)
    (path.parent / "b-2.json").write_text("{")
    text = draw(site, "compare", a=find_run(site, "a").ident, b=find_run(site, "b").ident)
    assert "no JSON document of a world" in part(text, "world")


def test_comparison_form_keeps_the_choice_and_refuses_invalid_ones(family: Path) -> None:
    site = Site(family)
    runs = [find_run(site, name).ident for name in ("first", "second")]
    chosen = draw(site, "compare", a=runs[0], b=runs[1])
    assert f'value="{runs[1]}" selected=""' in chosen
    form = draw(site, f"run/{runs[0]}")
    offered = re.findall(r'value="(\w+)" selected', form)
    assert offered[0] == runs[0] != offered[1]
    empty = make(site, "compare")
    assert [one.name for one in empty.parts] == ["choose"]
    assert 'action="/compare"' in draw(site)
    save = saves_of(site, "first", "alpha")[0][0].split("/")[-1]
    for idents in (("0123456789", runs[0]), (HOSTILE, "../x"), (save, runs[0])):
        with pytest.raises(NoSuchPage):
            make(site, "compare", a=idents[0], b=idents[1])


def test_comparison_without_fork_or_common_time_has_a_note(tmp_path: Path) -> None:
    for name, times in (("a", (1, 2)), ("b", (3, 4))):
        document = {"run": run_of(name), "checkpoints": [save_of(name, time) for time in times]}
        write_run(tmp_path / "lab" / name, {name: document})
    site = Site(tmp_path / "lab")
    text = draw(site, "compare", a=find_run(site, "a").ident, b=find_run(site, "b").ident)
    assert "They have no common fork" in part(text, "parting")
    assert "They have no saves at the same simulated time" in part(text, "world")
    assert "No recording: this axis shows only host time." in part(text, "axis")


def test_attempts_are_compared_from_the_experiment_page_with_their_scores(
    tmp_path: Path,
) -> None:
    directory = shutil.copytree(V1_SCORED, tmp_path / "lab" / "exp")
    site = Site(tmp_path / "lab")
    rows = [row for row in site.read_record(directory).results().rows() if row.scores]
    for row in rows[:2]:
        write_run(directory / row.run_dir, {"w000": {"run": run_of("w000")}})
    site = Site(tmp_path / "lab")
    runs = [find_run(site, f"exp/{row.run_dir}").ident for row in rows[:2]]
    form = draw(site, f"experiment/{site.identify(directory)}")
    assert all(f'<option value="{run}"' in form for run in runs)
    facts = part(draw(site, "compare", a=runs[0], b=runs[1]), "facts")
    name, score = next(iter(rows[0].scores.items()))
    assert f"Score {name} {score:g} {rows[1].scores[name]:g}" in facts


# -- tool calls ------------------------------------------------------------------------------------


def write_agent(run: Path, *changes: tuple[str, str], **facts: object) -> AgentDir:
    """Write an agent with a recorded log and some changes."""
    directory = make_agent(run / "agents" / "Eko", VERSION)
    text = directory.log_file.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    directory.log_file.write_text(text)
    write_events(directory, VERSION)
    record = AgentRecord(name="Eko", driver="claude", state="stopped", **facts)  # type: ignore[arg-type]
    directory.status_file.write_bytes(msgspec.json.encode(record))
    return directory


def test_calls_and_results_are_compared_without_recordings(
    tmp_path: Path,
) -> None:
    for name, changes in (("a", ()), ("b", (("echo hi-there", f"echo {HOSTILE}"),))):
        run = write_run(tmp_path / "lab" / name, {name: {"run": run_of(name)}})
        write_agent(run, *changes, usage=Usage(output_tokens=7, turns=3))
    site = Site(tmp_path / "lab")
    text = draw(site, "compare", a=find_run(site, "a").ident, b=find_run(site, "b").ident)
    parting = part(text, "parting")
    assert (
        "First action that differs: Eko arguments.command, by the tool calls and results" in parting
    )
    assert "because not both have recordings" in parting
    assert "echo hi-there" in parting
    assert HOSTILE not in text
    assert "No observation differs, by the tool calls" in parting
    assert re.search(r'href="/run/\w+/agent/\w+\?at=341#o341"', text)
    assert "Tokens 7 7" in part(text, "facts")
    assert "Prompts of branches differ by design" in part(text, "prompts")
    assert "A Begin B Begin" in part(text, "prompts")


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ("[0.123456789, 1e-9]", "[0.123466789, 2]", ("[0.123457, 1e-09]", "[0.123467, 2]")),
        ("0.123456789", "0.123456788", ("0.123456789", "0.123456788")),
    ],
)
def test_numbers_have_six_digits_unless_they_would_look_equal(
    tmp_path: Path, first: str, second: str, shown: tuple[str, str]
) -> None:
    for name, number in (("a", first), ("b", second)):
        run = write_run(tmp_path / "lab" / name, {name: {"run": run_of(name)}})
        write_agent(run, ('"echo hi-there"', number))
    site = Site(tmp_path / "lab")
    text = draw(site, "compare", a=find_run(site, "a").ident, b=find_run(site, "b").ident)
    assert all(f'<pre class="diff">{number}</pre>' in text for number in shown)


def differences(tmp_path: Path, *changes: tuple[str, str]) -> list[FirstDifference]:
    first, second = write_agent(tmp_path / "a"), write_agent(tmp_path / "b", *changes)
    return [*find_call_differences((first.path, second.path), (None, None), NAMES)]


def test_a_result_that_differs_is_an_observation(tmp_path: Path) -> None:
    (found,) = differences(tmp_path, ('"content": "hi-there"', '"content": "ho-there"'))
    assert (found.kind, found.values) == ("observation", ["hi-there", "ho-there"])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("curl http://127.0.0.1:8080/step", "curl http://127.0.0.1:9090/step"),
        (
            "id 3456061d-8654-43ce-a988-29a50141d322",
            "id 00000000-8654-43ce-a988-29a50141d322",
        ),
        ("cat /x/run-a/notes", "cat /y/z/run-b/notes"),
        ("at 2026-06-22T18:00:00Z", "at 2026-06-22T18:00:01.5Z"),
    ],
)
def test_addresses_ids_directories_and_times_are_equal(
    tmp_path: Path, first: str, second: str
) -> None:
    agents = [
        write_agent(tmp_path / name, ("echo hi-there", command))
        for name, command in (("a", first), ("b", second))
    ]
    paths = [agent.path for agent in agents]
    assert [*find_call_differences(paths, (None, None), NAMES)] == []


def test_calls_of_the_parent_before_the_fork_are_not_compared(tmp_path: Path) -> None:
    first = write_agent(tmp_path / "a")
    second = write_agent(tmp_path / "b")
    since = ("2026-11-22T11:10:30Z", None)
    assert [*find_call_differences((first.path, second.path), since, NAMES)] == []
    changed = json.dumps("echo before")[1:-1]
    other = write_agent(tmp_path / "c", ("echo hi-there", changed))
    assert [*find_call_differences((other.path, second.path), since, NAMES)] == []
    assert len([*find_call_differences((other.path, second.path), (None, None), NAMES)]) == 1


def test_a_long_path_takes_linear_time(tmp_path: Path) -> None:
    (found,) = differences(tmp_path, ("echo hi-there", "/a" * 300_000 + " run-b"))
    assert found.values[1].endswith("NAME")
