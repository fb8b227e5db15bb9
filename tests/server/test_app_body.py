"""Reading a body that is too long, straight at the ASGI interface."""

from __future__ import annotations

import pytest

from clawblox.server import create_app
from clawblox.server.app import MAX_BODY_BYTES

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_an_endless_body_is_refused_at_the_size_limit(hosted, settings):
    session = hosted.join("Rocky")
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/input",
        "query_string": b"",
        "headers": [
            (b"host", b"127.0.0.1:8080"),
            (b"x-session", session.session.encode()),
            (b"content-type", b"application/json"),
        ],
    }
    kilobytes, sent = 0, []

    async def receive():
        nonlocal kilobytes
        kilobytes += 1
        return {"type": "http.request", "body": b" " * 1024, "more_body": True}

    async def send(message):
        sent.append(message)

    await create_app(hosted, settings)(scope, receive, send)
    assert sent[0]["status"] == 413
    assert kilobytes == MAX_BODY_BYTES // 1024 + 1
