"""Shared addresses: they lead to the same place in other directories, or to a hint."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.rundir.manifest import manifest_path
from clawblox.web.page import Ask
from clawblox.web.shared_address import SharedAddress, find_pages, share
from clawblox.web.site import NoSuchPage, Site
from tests.agents.support import write_status
from tests.support.lineages import run_of, save_of, write_manifest
from tests.support.waiting import HANG_S
from tests.web.sites import LINKS, html_of, links_of, make, only_run, write_log


def pages_of(root: Path, address: str) -> list[str]:
    return [page.text for _, page in find_pages(Ask(Site(root), LINKS), address)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_site(tmp_path)


def write_site(root: Path) -> Path:
    """Write a run with an agent and a save."""
    run = root / "site" / "run"
    document = {"schema_version": 1, "run": run_of("w000"), "checkpoints": [save_of("w000", 1)]}
    write_manifest(run, document)
    write_log(run, "w000", b"a line\n", run_id="w000-run")
    write_status(run / "agents" / "Ada")
    return run


_texts = st.text(min_size=1, max_size=30)


@given(
    _texts,
    st.sampled_from(["run", "agent", "log", "replay", "save"]),
    _texts,
    st.sampled_from(["", "o12345", "t=720", "a/b #c"]),
)
def test_shared_address_is_parsed_back(run_id: str, kind: str, name: str, place: str) -> None:
    address = SharedAddress(run_id, kind, "" if kind == "run" else name, place)
    assert SharedAddress.parse(str(address)) == address
    assert SharedAddress.parse(f"http://127.0.0.1:1/key/{address}") == address
    assert str(address).isascii()


@pytest.mark.parametrize(
    "text", ["", "#", "/", "#r/agent", "#r/agent/", "#r/no/x", "#r/run/a/b", "#" + "x" * 3000]
)
def test_other_texts_are_refused_with_an_example_address(tmp_path: Path, text: str) -> None:
    with pytest.raises(NoSuchPage, match="copy link"):
        pages_of(tmp_path, text)


def test_each_kind_of_address_leads_to_its_page_in_a_moved_run(tmp_path: Path, run: Path) -> None:
    for root in (tmp_path / "site", run, tmp_path):
        site = Site(root)
        ident = only_run(site).ident
        agent = site.identify(run / "agents" / "Ada")
        save = site.identify(run / "checkpoints" / "w000-1.json")
        assert pages_of(root, "#w000-run") == [f"/key/run/{ident}"]
        assert pages_of(root, "#w000-run/run/saves") == [f"/key/run/{ident}#saves"]
        assert pages_of(root, "#w000-run/log/w000/o12") == [f"/key/run/{ident}/log/w000?at=12#o12"]
        assert pages_of(root, "#w000-run/agent/Ada/o345") == [
            f"/key/run/{ident}/agent/{agent}?at=345#o345"
        ]
        assert pages_of(root, "#w000-run/save/w000-1.json") == [f"/key/run/{ident}/save/{save}"]


def test_shared_address_of_a_page_leads_back_to_the_page(tmp_path: Path, run: Path) -> None:
    site = Site(tmp_path)
    found = only_run(site)
    assert pages_of(tmp_path, share(found)) == [f"/key/run/{found.ident}#"[:-1]]
    for path in (f"run/{found.ident}", f"run/{found.ident}/log/w000"):
        page = make(site, path)
        assert f'data-address="{page.share}"' in html_of(page)
        assert pages_of(tmp_path, page.share) == [f"/key/{path}"]


def test_an_earlier_run_of_a_directory_is_found(tmp_path: Path, run: Path) -> None:
    saves = [save_of("w000", 1), save_of("w000", 2, run_id="earlier-run")]
    document = {"schema_version": 1, "run": run_of("w000"), "checkpoints": saves}
    write_manifest(run, document)
    assert pages_of(tmp_path, "#earlier-run/run") == pages_of(tmp_path, "#w000-run/run")


def test_copied_run_directory_leads_to_a_choice(tmp_path: Path, run: Path) -> None:
    shutil.copytree(run, run.with_name("copy"))
    page = make(Site(tmp_path / "site"), "open?address=%23w000-run%2Flog%2Fw000")
    assert len([to for to in links_of(page) if "/log/w000" in to]) == 2
    assert "Several run directories" in html_of(page)
    assert {"run", "copy"} <= set(html_of(page).replace("<", ">").split(">"))


def test_address_of_a_missing_run_is_refused_with_a_hint(tmp_path: Path, run: Path) -> None:
    with pytest.raises(NoSuchPage, match="a directory above the run"):
        pages_of(tmp_path, "#another/run")
    for place in ("agent/Bo", "log/w001", "replay/1", "save/none.json"):
        with pytest.raises(NoSuchPage, match="to see what it has"):
            pages_of(tmp_path, f"#w000-run/{place}")
    manifest_path(run).unlink()
    with pytest.raises(NoSuchPage, match="to see what it has"):
        pages_of(tmp_path, "#w000-run/save/w000-1.json")


# -- the server and the command --------------------------------------------------------------------


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


_opener = urllib.request.build_opener(_Stay)


def fetch(url: str) -> tuple[int, str, str]:
    """Return the status, ``Location`` and text of an answer."""
    try:
        with _opener.open(url, timeout=HANG_S) as answer:
            return answer.status, "", answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("Location", ""), error.read().decode()


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "clawblox", "app", *words, "--no-browser", "--port", "0"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the pages with --open, and yield the address that the command printed."""
    root = tmp_path_factory.mktemp("address")
    write_site(root)
    with start(str(root / "site"), "--open", "#w000-run/log/w000/o2") as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=HANG_S)


def test_the_command_and_the_server_open_addresses(address: str) -> None:
    status, _, text = fetch(address)
    assert status == 200
    assert "a line" in text
    base = address.partition("run/")[0]
    status, to, _ = fetch(f"{base}open?address=%23w000-run%2Flog%2Fw000%2Fo2")
    assert status == 303
    assert to == address.partition("//")[2][address.partition("//")[2].index("/") :]
    status, _, text = fetch(f"{base}open?address=%23gone%2Frun")
    assert status == 404
    assert "a directory above the run" in text


def test_old_key_gets_an_answer_with_a_hint(address: str) -> None:
    origin = "/".join(address.split("/")[:3])
    status, _, text = fetch(f"{origin}/{'x' * 22}/run/0123456789")
    assert status == 403
    assert text.startswith("<!doctype html>")
    assert "clawblox app DIR --open" in text


@pytest.mark.thorough
def test_app_refuses_an_address_without_a_page(tmp_path: Path, run: Path) -> None:
    with start(str(tmp_path), "--open", "#gone/run") as process:
        _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode != 0
    assert "No run in" in errors
    assert "Traceback" not in errors
