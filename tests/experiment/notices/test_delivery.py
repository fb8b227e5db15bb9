"""Notices reach a command or an address, or fail with the reason: real processes and servers."""

from __future__ import annotations

import http.server
import json
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clawblox.experiment.notices import delivery
from clawblox.experiment.notices.delivery import VARIABLES, DeliveryError, post, run_command
from clawblox.protocol import INSTANCE_ENV
from tests.support.processes import is_alive

pytestmark = pytest.mark.anyio


def script(root: Path, text: str) -> list[str]:
    path = root / "hook.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return [str(path)]


async def run(root: Path, text: str, notice: bytes = b"{}\n") -> None:
    await run_command(script(root, text), "on_done", notice, root)


# -- commands -----------------------------------------------------------------------------------


async def test_a_command_gets_the_notice_and_the_listed_variables_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "LC_SECRET", "DATABASE_URL", "CLAWBLOX_OPERATOR_TOKEN"):
        monkeypatch.setenv(name, "sk-secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    await run(tmp_path, "cat > notice; env > env; pwd > cwd", b'{"event": "done"}\n')
    assert json.loads((tmp_path / "notice").read_text()) == {"event": "done"}
    assert (tmp_path / "cwd").read_text().strip() == str(tmp_path)
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert {"PATH", "LANG"} <= names
    assert names <= {*VARIABLES, INSTANCE_ENV, "PWD", "SHLVL", "OLDPWD", "_"}
    assert "sk-secret" not in (tmp_path / "env").read_text()


async def test_a_command_is_not_passed_to_a_shell(tmp_path: Path) -> None:
    words = [*script(tmp_path, 'printf "%s" "$1" > word'), "$(id); echo *"]
    await run_command(words, "on_done", b"", tmp_path)
    assert (tmp_path / "word").read_text() == "$(id); echo *"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo no network; exit 3", "status 3: no network"),
        ("kill -9 $$", "SIGKILL"),
    ],
)
async def test_a_command_that_fails_is_reported(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(DeliveryError, match=reason):
        await run(tmp_path, text)


async def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match="program that can be executed"):
        await run_command(["./nothing"], "on_done", b"", tmp_path)


async def test_command_that_does_not_end_is_killed_with_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "DELIVERY_S", 0.3)
    with pytest.raises(DeliveryError, match="did not end within"):
        await run(tmp_path, "setsid sleep 1000 & echo $! > pid; sleep 1000")
    assert not is_alive(int((tmp_path / "pid").read_text()))


async def test_processes_left_by_a_command_are_ended(tmp_path: Path) -> None:
    await run(tmp_path, "setsid sleep 1000 >/dev/null 2>&1 & echo $! > pid")
    assert not is_alive(int((tmp_path / "pid").read_text()))


async def test_a_command_may_write_more_than_a_pipe_holds(tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match=r"status 1: 0{2000}$"):
        await run(tmp_path, "head -c 1000000 /dev/zero | tr '\\0' 0; exit 1")


async def test_a_program_that_an_agent_may_have_written_is_not_run(tmp_path: Path) -> None:
    for name in ("journal.jsonl", "plan.toml"):
        (tmp_path / name).write_text("")
    with pytest.raises(DeliveryError, match="outside of the directory of an experiment"):
        await run(tmp_path, "touch ran")
    assert not (tmp_path / "ran").exists()


# -- addresses ----------------------------------------------------------------------------------


@contextmanager
def serve(
    status: int = 200, headers: dict[str, str] | None = None, pem: Path | None = None
) -> Iterator[tuple[str, list[tuple[str, dict[str, str], bytes]]]]:
    """Serve at an address; yield the address and the requests."""
    requests: list[tuple[str, dict[str, str], bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.append((self.path, dict(self.headers), body))
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    if pem is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"{'http' if pem is None else 'https'}://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_an_address_gets_one_request_without_any_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password sk-secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with serve() as (proxy, proxied), serve() as (url, requests):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        monkeypatch.setenv("ALL_PROXY", proxy)
        await post(f"{url}/hooks?id=7", b'{"event": "done"}')
    ((path, headers, body),) = requests
    assert (path, body, proxied) == ("/hooks?id=7", b'{"event": "done"}', [])
    assert headers["Content-Type"] == "application/json"
    assert "authorization" not in {name.lower() for name in headers}


async def test_a_redirect_is_an_error_and_is_not_followed() -> None:
    with (
        serve() as (other, followed),
        serve(307, {"Location": other}) as (url, requests),
        pytest.raises(DeliveryError, match="status 307, and redirects are not followed"),
    ):
        await post(url, b"{}")
    assert (len(requests), followed) == (1, [])


async def test_refusing_or_missing_address_is_reported() -> None:
    with serve(500) as (url, _), pytest.raises(DeliveryError, match="status 500"):
        await post(url, b"{}")
    with pytest.raises(DeliveryError, match="cannot be reached"):
        await post(url, b"{}")


async def test_an_address_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "DELIVERY_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(DeliveryError, match="did not answer within"):
            await post(address, b"{}")


@pytest.mark.thorough
@pytest.mark.needs("openssl")
async def test_the_certificate_of_an_address_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = tmp_path / "key.pem"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
    new += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "-"]
    pem.write_bytes(subprocess.run(new, capture_output=True, check=True).stdout)
    with serve(pem=pem) as (url, requests):
        with pytest.raises(DeliveryError, match="certificate"):
            await post(url, b"{}")
        assert requests == []
        monkeypatch.setenv("SSL_CERT_FILE", os.fspath(pem))
        await post(url, b"{}")
    assert [body for _, _, body in requests] == [b"{}"]
