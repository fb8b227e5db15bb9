"""Access to the pages: only with the key, directly from this server, and not from foreign pages."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from clawblox.cli import main
from clawblox.errors import ClawbloxError
from clawblox.web import app
from clawblox.web.gate import Keys
from tests.support.lineages import run_of, write_run
from tests.support.template import Template
from tests.web.served import Served, served


@pytest.fixture(scope="module")
def site(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("root")
    (root / "secret.txt").write_text("not for pages")
    write_run(root / "r001", {"w000": {"run": run_of("w000")}})
    with served(
        template, root, "--allow-host", "lab.example", "--allow-host", "localhost:9000"
    ) as found:
        yield found


def test_the_pages_need_their_key(site: Served) -> None:
    assert site.ask("").status == 200
    wrong = site.key[:-1] + ("A" if site.key[-1] != "A" else "B")
    for target in ("/", "/run", f"/{wrong}/", f"/{wrong}/static/app.js", "/static/app.js", "//"):
        answer = site.ask_raw(target)
        assert answer.status == 403, target
        assert "clawblox app DIR --open" in answer.body.decode()
        assert site.key not in answer.body.decode()


def test_a_word_opens_the_pages_once_and_within_a_minute() -> None:
    now = 100.0
    keys = Keys(lambda: now)
    word = keys.open_once("run/1234567890")
    assert keys.use(word) == f"/{keys.key}/run/1234567890"
    assert keys.use(word) is None
    late = keys.open_once()
    now += 60.0
    assert keys.use(late) is None
    assert keys.use("") is None
    assert len({Keys().key for _ in range(100)}) == 100
    assert len(keys.key) >= 22  # 128 bits


def test_foreign_hosts_and_origins_are_refused(site: Served) -> None:
    own = f"127.0.0.1:{site.port}"
    hosts = {
        own: 200,
        f"localhost:{site.port}": 200,
        "lab.example": 200,
        f"lab.example:{site.port}": 200,
        "localhost:9000": 200,
        "evil.example": 421,
        f"evil.example:{site.port}": 421,
        "127.0.0.1:1": 421,
        f"{own}.evil.example": 421,
    }
    for host, status in hosts.items():
        assert site.ask("", Host=host).status == status, host
    origins = {f"http://{own}": 200, "http://evil.example": 403, "null": 403, "https://" + own: 403}
    for origin, status in origins.items():
        assert site.ask("", Origin=origin).status == status, origin
    assert site.ask("", Sec_Fetch_Site="cross-site").status == 403


def test_pages_refuse_writing_methods(site: Served) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "POST"):
        assert site.ask("", method).status == 405, method
    assert site.ask("", "HEAD").status == 200


def test_addresses_cannot_open_files(site: Served) -> None:
    paths = [
        "../secret.txt",
        "..%2fsecret.txt",
        "static/../../secret.txt",
        "static/..%2f..%2fsecret.txt",
        "static//etc/passwd",
        "run/..%2f..",
        "run/%00",
        "run/r001",
        "x/../secret.txt",
        "file/r001/secret.txt",
    ]
    for path in paths:
        answer = site.ask(path)
        assert answer.status in (403, 404), path
        assert b"not for pages" not in answer.body
        assert b"root:" not in answer.body


def test_every_answer_has_a_restrictive_policy(site: Served) -> None:
    for path in ("", "run/1234567890", "static/app.js", "changes?page=&seen="):
        headers = site.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in headers


def test_odd_requests_get_an_answer(site: Served, tmp_path: Path) -> None:
    for path in (
        "changes",
        "changes?page=" + "x" * 3000,
        "changes?seen=,,:,&page=%ff",
        "?q=%ff%00",
    ):
        assert site.ask(path).status in (200, 204, 404, 410, 414), path


def test_answers_do_not_wait_for_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    are_prompt = []

    def stop(_root: Path, listener: socket.socket, *_others: object) -> None:
        with listener, socket.create_connection(listener.getsockname()):
            connection, _ = listener.accept()
            with connection:
                are_prompt.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        raise ClawbloxError("enough")

    monkeypatch.setattr(app, "Server", stop)
    CliRunner().invoke(main, ["app", ".", "--port", "0", "--no-browser"])
    assert are_prompt == [1]  # otherwise an answer takes 40 ms
