"""Downloads from public hosts: the only module that knows httpx, whose errors become ours here.

httpx is imported by the first download, for it takes longer to load than all the rest. Everything
here blocks.
"""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING, BinaryIO

from clawblox.errors import FetchError

if TYPE_CHECKING:
    import httpx


_MAX_TEXT_BYTES = 64 << 10
_MAX_REDIRECTS = 5
_SILENCE_S = 30.0
"""Longest silence of a public host, in seconds."""


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
