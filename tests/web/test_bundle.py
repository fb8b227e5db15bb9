"""Pages as files: complete, linked to each other, and without names and secrets of the host."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from click.testing import CliRunner, Result

from clawblox.agents.status import AgentRecord, StatusWriter
from clawblox.cli import main
from clawblox.errors import ClawbloxError
from clawblox.views.html import join, link, style
from clawblox.web.bundle import write_bundle
from clawblox.web.outgoing import MASK, Names, Outgoing
from clawblox.web.page import Ask, Page, Part
from tests.agents.trajectory.support import make_agent, write_events
from tests.golden.test_golden_experiments import V1
from tests.rundir.test_records import alive
from tests.support.waiting import HANG_S
from tests.web.replays import engine_world, record
from tests.web.sites import write_log

__all__ = ["alive"]

USER, HOST = "quillon", "Nightjar-7"
SECRET = "ghp_" + "k3Rz9QwLx7TbVn2MfGh8Jc4YdPs6Aa1Xe5Uo"
VERSION = "2.1.330"
HREF = re.compile(r'(?:href|src)="([^"]*)"')


def spell(name: str) -> Iterator[str]:
    """Yield the spellings of a name in texts."""
    quoted = quote(name, safe="")
    yield from (name, quoted, quoted.lower(), quote(quoted, safe=""), escape(escape(name)))
    yield json.dumps(f"a\n{name}\tb")
    yield json.dumps(json.dumps(f"a\n{name}\\b"))
    yield json.dumps(name).replace("/", "\\/")
    yield json.dumps(name).replace("/", "\\u002f")
    yield f"\x1b[32m{name}\x1b[0m:$ ls"
    yield f"file://{name} ({name}), {name}:12: {name}_2 x_{name}."


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Set distinctive names for user, host, home and directory; return all names."""
    home = tmp_path / "homes" / USER
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for variable in ("LOGNAME", "USER"):
        monkeypatch.setenv(variable, USER)
    monkeypatch.setattr(socket, "gethostname", lambda: f"{HOST}.example.net")
    return [str(home / "lab & co"), str(home), USER, HOST, HOST.upper(), HOST.lower()]


@pytest.fixture
def root(names: list[str]) -> Path:
    """Return a directory with the names in every field."""
    root = Path(names[0])
    lines = [line for name in names for line in spell(name)]
    everything = " | ".join(lines)
    shutil.copytree(V1, root / "exp")
    for file in (root / "exp").iterdir():
        text = file.read_text()
        text = text.replace('"exp"', f'"{USER}"').replace("/worlds/panda", f"{names[1]}/panda")
        file.write_text(text.replace("Begin", f"Begin {USER} in {names[1]}"))
    run = root / f"run-of-{USER}"
    write_log(
        run,
        "w000",
        ("\n".join(lines) + "\n").encode(),
        options={"labels": {"by": USER, "on": HOST}},
    )
    write_log(run, "w001", b"x", state="failed", world=USER, options={"labels": {"in": names[0]}})
    agent = make_agent(run / "agents" / USER, VERSION)
    write_events(agent, VERSION)
    said = agent.log_file.read_bytes()
    for plain in (b"I have noted that", b"Noted"):
        said = said.replace(plain, json.dumps(everything)[1:-1].encode())
    agent.log_file.write_bytes(said)
    status = AgentRecord(
        name=USER, driver="claude", state="failed", reason=everything, time="2026-06-02T10:00:00Z"
    )
    StatusWriter(agent).write(status)
    return root


def contents(out: Path) -> dict[str, str]:
    return {
        str(file.relative_to(out)): file.read_text() for file in out.rglob("*") if file.is_file()
    }


def find_name(text: str, names: list[str]) -> str | None:
    """Return a remaining name in a text, in any encoding; None if there is none."""
    for _ in range(4):
        for name in names:
            at = text.lower().find(name.lower())
            if at >= 0:
                return text[max(0, at - 60) : at + 60]
        text = unescape(unquote(text)).replace("\\/", "/").replace("\\u002f", "/")
    return None


def app(root: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["app", str(root), *words])


def test_bundle_contains_no_user_host_or_directory_names_in_any_form(
    root: Path, names: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    write_bundle(root, out)
    files = contents(out)
    assert any("run" in name for name in files)
    for file, text in files.items():
        assert find_name(file, names) is None
        assert find_name(text, names) is None, file
    everything = "".join(files.values())
    assert all(word in everything for word in ("DIR", "~", "HOST", "USER"))


def test_a_page_of_a_trajectory_has_no_names_and_no_script(
    root: Path, names: list[str], tmp_path: Path
) -> None:
    agent = root / f"run-of-{USER}" / "agents" / USER
    file = tmp_path / "eko.html"
    result = CliRunner().invoke(main, ["trajectory", str(agent), "--html", str(file)])
    assert result.exit_code == 0, result.output
    text = file.read_text()
    assert find_name(text, names) is None
    assert "<script" not in text
    assert "HOST" in text
    assert "Bash" in text or "turn 1" in text


@pytest.mark.parametrize("user", ["root", "ubuntu", "admin"])
def test_style_sheets_are_unchanged_for_any_user_name(user: str) -> None:
    rules = style("page", "agent").html.encode()
    assert Names({}, [user], []).replace(rules) == rules


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tranquillonity quillons", "tranquillonity quillons"),
        ("/homes/quillon2 /homes/quillon/x", "/homes/quillon2 ~/x"),
        ("/srv/lab-2 /srv/lab/x /srv/lab_2", "DIR-2 DIR/x /srv/lab_2"),
        ("-homes-quillon-x -srv-lab", "~-x DIR"),
        ("cut /homes/qui… and quil…", "cut ~… and USER…"),
        ("cut /homes/qui", "cut ~"),
        ("a b a@host ab@host", "a b USER@host ab@host"),
        ('<a class="quillon" href="quillon.html#quillon">quillon</a>',
         '<a class="quillon" href="quillon.html#USER">USER</a>'),
        ('<p title="quillon" data-sort="NIGHTJAR-7">', '<p title="USER" data-sort="HOST">'),
    ],
)  # fmt: skip
def test_names_are_replaced_as_whole_words_and_markup_stays(text: str, shown: str) -> None:
    names = Names({"/homes/quillon": "~", "/srv/lab": "DIR"}, [USER, "a"], [HOST])
    assert names.replace(text.encode()).decode() == shown


def test_bundle_links_lead_to_files_and_pages_need_no_server(
    root: Path, tmp_path: Path, alive: dict[str, Any]
) -> None:
    write_log(root / "live", "w000", b"so far\n", state="ready", exit=None, **alive)
    out = tmp_path / "out"
    write_bundle(root, out)
    files = contents(out)
    for file, text in files.items():
        if not file.endswith(".html"):
            continue
        for to in HREF.findall(text):
            target = unescape(to).partition("#")[0]
            assert not target or target in files, (file, to)
        for gone in ("<form", "<select", 'id="live"', "data-cursor"):
            assert gone not in text, file
        assert "clawblox app DIR" in text
    for kind in ("experiment", "run", "log", "usage", "reports"):
        assert any(name.startswith(f"{kind}-") for name in files), kind


@pytest.mark.thorough
def test_a_log_is_written_window_by_window_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "lab" / "r1"
    write_log(run, "w000", b"".join(b"line %06d\n" % number for number in range(60_000)))
    write_bundle(tmp_path / "lab", tmp_path / "out")
    text = "".join(contents(tmp_path / "out").values())
    assert set(re.findall(r"line (\d{6})", text)) == {f"{number:06}" for number in range(60_000)}
    monkeypatch.setattr("clawblox.web.bundle._MAX_WINDOWS", 4)
    write_bundle(tmp_path / "lab", tmp_path / "few")
    files = contents(tmp_path / "few")
    assert sum(name.startswith("log-") for name in files) == 5
    assert any('href="left-out.html"' in text for text in files.values())


def test_windows_linked_from_their_own_page_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_page(ask: Ask, path: str) -> Page:
        at = ask.whole("at")
        places = [at + 1 if at else 100] if path else [10, 20, 30]
        ways = [ask.links.to("log", "x", at=place) for place in places]
        ways += [ask.links.to("log", "x")]
        body = join([link("way", to) for to in ways])
        return Page(f"at {at}", (), (Part("ways", body),))

    monkeypatch.setattr("clawblox.web.bundle.routes.make_page", make_page)
    monkeypatch.setattr("clawblox.web.bundle._MAX_WINDOWS", 8)
    write_bundle(tmp_path, tmp_path / "out")
    text = "".join(contents(tmp_path / "out").values())
    drawn = set(re.findall(r"<h1>at (\w+)</h1>", text))
    assert drawn == {"None", "10", "20", "30", "100", "101", "102", "103", "104"}


def test_shared_addresses_lead_to_the_window_with_their_byte(root: Path, tmp_path: Path) -> None:
    write_bundle(root, tmp_path / "out")
    script = (tmp_path / "out" / "static" / "addresses.js").read_text()
    shared = json.loads(script.removeprefix("const ADDRESSES = ").removesuffix(";\n"))
    (file, first, last) = shared["#w000-id/log/w000"][0]
    assert (tmp_path / "out" / file).is_file()
    assert first == 0 < last


def test_recording_is_bundled_as_moments_with_the_drawing_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions = [("Jump", {})] * 4
    record(engine_world(tmp_path), tmp_path / "runs" / "run", *actions)
    monkeypatch.setattr("clawblox.web.bundle._MAX_MOMENTS", 12)
    monkeypatch.setattr("clawblox.web.bundle._MAX_LISTED", 10)
    write_bundle(tmp_path / "runs", tmp_path / "out")
    replays = {
        name: text for name, text in contents(tmp_path / "out").items() if name.startswith("replay")
    }
    assert 5 < len(replays) <= 13
    for text in replays.values():
        assert "the renderers of worlds need a program" in text
        assert "has no renderer" not in text
        (frame,) = re.findall(r'<iframe src="([^"]+)" sandbox="allow-scripts"', text)
        assert (tmp_path / "out" / frame).is_file()
        assert "left-out" not in text
    moments = {time for text in replays.values() for time in re.findall(r'id="now">([^<]+)', text)}
    assert len(moments) > 4
    assert set(os.listdir(tmp_path / "out" / "static")) == {
        *("addresses.js", "app.js", "icon.svg", "replay.js", "style.css")
    }


def test_drawn_states_contain_no_names_but_keep_their_keys(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, root = engine_world(tmp_path), Path(names[0])
    config = world / "world.toml"
    config.write_text(config.read_text().replace('"box"', f'"<{USER}> box"'))
    part = f"part.Name = '<{USER} {names[1]} > x'"
    main = world / "main.lua"
    main.write_text(main.read_text().replace("part.Name = 'Box'", part))
    assets = {
        "t.gltf": f'{{"a": 1 < 2, "by": "{USER}"}}'.encode(),
        "b.glb": b"\xff " + USER.encode(),
    }
    for name, data in {**assets, f"{USER}.txt": b"<", "c.glb": b"\xff\xfe"}.items():
        (world / "assets" / name).write_bytes(data)
    root.mkdir(parents=True)
    record(world, root / "run", ("Jump", {}))
    monkeypatch.setenv("LOGNAME", "root")
    monkeypatch.setattr(socket, "gethostname", lambda: "Rocky")
    write_bundle(root, tmp_path / "out")
    page = next(text for name, text in contents(tmp_path / "out").items() if "-frame" in name)
    table = page.partition('id="files">')[2].partition("</script>")[0]
    files = json.loads(table)
    assert files["assets/c.glb"] == ["//4="]
    assert files["assets/t.gltf"] == '{"a": 1 < 2, "by": "USER"}'
    assert {"assets/b.glb", f"assets/{USER}.txt"}.isdisjoint(files)
    assert json.loads(files["renderer/manifest"])["entry_url"] is None
    states = "".join(file.read_text() for file in (tmp_path / "out").glob("states-*.js"))
    assert "root_part_id" in states
    assert "Rocky" not in states
    for text in (states, files["renderer/manifest"], "".join(files)):
        assert find_name(text, names) is None


# -- secrets ---------------------------------------------------------------------------------------


@pytest.fixture
def leaky(tmp_path: Path) -> Path:
    run = tmp_path / "lab" / "r1"
    write_log(run, "w000", b"one\ntwo\n" + f'{{"token": "{SECRET}"}}\n'.encode())
    return tmp_path / "lab"


def test_a_secret_refuses_the_bundle_with_file_and_line(leaky: Path, tmp_path: Path) -> None:
    result = app(leaky, "--bundle", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert re.search(r"r1/logs/w000\.log:3 \(shown by .*\): github-token ghp_", result.output)
    assert "--redact" in result.output
    assert SECRET not in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["lab"]


def test_page_with_a_secret_is_masked_before_it_is_written(
    tmp_path: Path,
) -> None:
    outgoing = Outgoing(tmp_path, (), redact=False)
    page = outgoing.clear("log.html", f'<pre>{{"token": "{SECRET}"}}</pre>'.encode())
    assert SECRET not in page.decode()
    with pytest.raises(ClawbloxError, match=r"log\.html:1: github-token"):
        outgoing.check()


def test_redact_masks_a_secret(leaky: Path, tmp_path: Path) -> None:
    result = app(leaky, "--bundle", str(tmp_path / "out"), "--redact")
    assert result.exit_code == 0, result.output
    text = "".join(contents(tmp_path / "out").values())
    assert SECRET not in text
    assert MASK.decode() in text
    assert "two" in text


def test_a_secret_refuses_the_page_of_a_trajectory(tmp_path: Path) -> None:
    agent = make_agent(tmp_path / "Eko", VERSION)
    write_events(agent, VERSION)
    said = agent.log_file.read_text().replace("oted", f"oted {SECRET}")
    agent.log_file.write_text(said)
    words = ["trajectory", str(agent.path), "--html", str(tmp_path / "eko.html")]
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 1
    assert re.search(r"logs/agent\.log:\d+ \(.*\): github-token", refused.output)
    assert not (tmp_path / "eko.html").exists()
    assert CliRunner().invoke(main, [*words, "--redact"]).exit_code == 0
    assert SECRET not in (tmp_path / "eko.html").read_text()


# -- complete or absent ----------------------------------------------------------------------------


def test_bundle_size_is_reported_and_limited(leaky: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused = app(leaky, "--bundle", str(out), "--redact", "--max-size", "10kB")
    assert refused.exit_code == 1
    assert "larger than 10 kB" in refused.output
    assert not out.exists()
    result = app(leaky, "--bundle", str(out), "--redact")
    size, place = result.output.splitlines()
    assert re.fullmatch(r"The bundle has \d+ pages, [\d.]+ [kM]B", size)
    assert place.endswith("index.html")


def test_an_existing_directory_is_not_touched(leaky: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    result = app(leaky, "--bundle", str(out), "--redact")
    assert result.exit_code == 2
    assert "--bundle: must not exist yet" in result.output
    assert "give another name" in result.output
    assert list(out.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from clawblox.web import bundle
bundle.publish_tree = lambda *words: os.kill(os.getpid(), signal.SIGKILL)
bundle.write_bundle(Path(sys.argv[1]), Path(sys.argv[2]), redact=True)
"""


@pytest.mark.thorough
def test_partial_bundle_of_a_killed_command_is_removed_by_the_next(
    leaky: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(leaky), str(out)], timeout=HANG_S, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert not out.exists()
    assert [name for name in os.listdir(tmp_path) if name.endswith(".partial")]
    write_bundle(leaky, out, redact=True)
    assert sorted(os.listdir(tmp_path)) == ["lab", "out"]


def test_bundle_options_without_bundle_are_refused(leaky: Path) -> None:
    for words in (["--redact"], ["--max-size", "5MB"]):
        result = app(leaky, *words)
        assert result.exit_code == 2
        assert "--bundle" in result.output
