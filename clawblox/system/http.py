"""HTTP: the only module that knows httpx; its errors become this package's errors here.

httpx is imported when the first client is made, for it takes longer to load than all the rest.
"""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import FetchError, WorldCallError

if TYPE_CHECKING:
    import httpx

__all__ = ["MAX_ANSWER_BYTES", "Answer", "InstanceClient", "download", "fetch_text"]

MAX_ANSWER_BYTES = 4 << 20
"""Most bytes of the body of a world's answer."""

_BODY_START_CHARS = 200
_MAX_TEXT_BYTES = 64 << 10
_MAX_REDIRECTS = 5
_SILENCE_S = 30.0
"""Longest silence of a public host, in seconds."""


@attrs.frozen
class Answer:
    """What a world answered.

    Attributes:
        status: The status.
        body: The body.
        is_delimited: Whether the answer said where its body ends. If not, the end of the
            connection ended it, and a truncated body looks like a whole one.
    """

    status: int
    body: bytes
    is_delimited: bool = True

    @property
    def body_start(self) -> str:
        """The first characters of the body, for a message."""
        return self.body[: 4 * _BODY_START_CHARS].decode(errors="replace")[:_BODY_START_CHARS]


class InstanceClient:
    """Calls to one instance, on connections of its own, of which the first call makes the first.

    Each instance has a client of its own, because the cost of a request grows with the connections
    of its client. Neither proxies of the environment nor redirects are followed: a session belongs
    to the one loopback address that it was made for.

    Args:
        url: Address of the instance, base path included.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: httpx.AsyncClient | None = None

    async def post(
        self,
        route: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float,
    ) -> Answer:
        """Send a POST without a body.

        Args:
            route: Route below the instance's address.
            params: Query parameters.
            headers: Further headers.
            timeout: Seconds for the whole call, once httpx is loaded.

        Raises:
            WorldCallError: There was no answer, or it was too large.

        Cancellation: the connection is closed.
        """
        try:
            client = await self._open()
        except OSError as error:  # httpx cannot be loaded, for lack of descriptors
            raise WorldCallError(f"POST {route} failed: {error.strerror}") from error
        import httpx

        with anyio.move_on_after(timeout):
            try:
                return await self._send(client, route, dict(params or {}), dict(headers or {}))
            except httpx.HTTPError as error:
                reason = str(error) or type(error).__name__
                raise WorldCallError(f"POST {route} failed: {reason}") from error
        raise WorldCallError(f"POST {route} got no answer within {timeout:g} s")

    async def _open(self) -> httpx.AsyncClient:
        if self._client is not None:
            return self._client
        client = await run_blocking(_make_client)
        if self._client is None:  # else another call was faster
            self._client = client
        return self._client

    async def _send(
        self,
        client: httpx.AsyncClient,
        route: str,
        params: dict[str, str],
        headers: dict[str, str],
    ) -> Answer:
        request = client.stream("POST", self._url + route, params=params, headers=headers)
        async with request as response:
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise WorldCallError(
                        f"the answer to POST {route} is larger than {MAX_ANSWER_BYTES} bytes",
                        status=response.status_code,
                    )
            return Answer(response.status_code, body)

    async def aclose(self) -> None:
        """Close every connection.

        Cancellation: a connection may stay open until it is collected.
        """
        if self._client is not None:
            await self._client.aclose()


def _make_client() -> httpx.AsyncClient:
    import httpx

    return httpx.AsyncClient(
        verify=False,  # noqa: S501 - plain HTTP on the loopback, a TLS context costs 15 ms
        trust_env=False,
        follow_redirects=False,
        timeout=None,  # noqa: S113 - the deadline of `post` is for the whole call
    )


# --- downloads from public hosts; these block ----------------------------------------------


def download(
    url: str, sink: BinaryIO, *, max_bytes: int, timeout: float, accept: str = "*/*"
) -> None:
    """Write what a public host answers into ``sink``, as it was sent.

    Certificates are verified and the proxies of the environment used. A redirect is followed
    to HTTPS, or within the host that was asked.

    Args:
        url: What to get.
        sink: An open file; after an error it holds a part of the answer.
        max_bytes: Most bytes that are taken.
        timeout: Seconds for the whole download.
        accept: Media type to ask for.

    Raises:
        FetchError: There was no answer, a status other than 200, too many bytes, or no time left.
    """
    import httpx

    deadline = time.monotonic() + timeout
    headers = {"Accept": accept, "Accept-Encoding": "identity"}
    try:
        with httpx.Client(timeout=min(timeout, _SILENCE_S), headers=headers) as client:
            response = _follow(client, client.build_request("GET", url))
            try:
                _copy(response, sink, max_bytes, deadline)
            finally:
                response.close()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        hint = "is the network up, and does the address open in a browser?"
        raise FetchError(f"the download failed: {reason}", url=url, hint=hint) from error


def fetch_text(url: str, *, timeout: float, accept: str = "*/*") -> str:
    """Return the short text that a public host answers.

    Raises:
        FetchError: As :func:`download`.
    """
    sink = io.BytesIO()
    download(url, sink, max_bytes=_MAX_TEXT_BYTES, timeout=timeout, accept=accept)
    return sink.getvalue().decode(errors="replace")


def _follow(client: httpx.Client, request: httpx.Request) -> httpx.Response:
    origin = request.url
    for _ in range(_MAX_REDIRECTS + 1):
        response = client.send(request, stream=True)
        if response.next_request is None:
            return response
        response.close()
        request = response.next_request
        is_same_host = request.url.copy_with(raw_path=b"/") == origin.copy_with(raw_path=b"/")
        if request.url.scheme != "https" and not is_same_host:
            raise FetchError(f"the host redirects to {request.url}", url=str(origin))
    raise FetchError(f"the host redirects more than {_MAX_REDIRECTS} times", url=str(origin))


def _copy(response: httpx.Response, sink: BinaryIO, max_bytes: int, deadline: float) -> None:
    url, status = str(response.url), response.status_code
    if status != 200:
        message = f"the host answered {status} {response.reason_phrase}".rstrip()
        raise FetchError(message, url=url, status=status, hint=_limit_hint(response))
    received = 0
    for chunk in response.iter_raw():
        received += len(chunk)
        if received > max_bytes:
            raise FetchError(f"the answer is larger than {max_bytes} bytes", url=url, status=status)
        if time.monotonic() > deadline:
            raise FetchError(f"the download is too slow: {received} bytes so far", url=url)
        sink.write(chunk)


def _limit_hint(response: httpx.Response) -> str | None:
    headers = response.headers
    is_limit = headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers
    if response.status_code not in (403, 429) or not is_limit:
        return None
    wait = headers.get("retry-after")
    when = f"in {wait} s" if wait else "later, at most in an hour"
    return f"the host's limit for requests without an account is used up; try again {when}"
