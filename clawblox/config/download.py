"""Downloaded worlds: a folder of a GitHub repository becomes a local world directory.

Parses the address, manages the cache and unpacks archives. A folder is stored by commit in
``<home>/worlds/<owner>/<repo>/<commit>/<folder>``, complete or absent, because its ``world.toml``
is written last. httpx loads slowly, so it is imported at the first download. Everything here
blocks.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import re
import shutil
import tarfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Final, NoReturn, Self
from urllib.parse import quote, unquote, urlsplit

import attrs

from clawblox.config.arguments import mismatch
from clawblox.config.home import home_dir
from clawblox.errors import FetchError
from clawblox.system.files import fsync_directory, partial_tree, sweep_partials
from clawblox.system.regular_files import open_directory
from clawblox.system.trees import MAX_DEPTH, TreeWalk
from clawblox.world_keys import CONFIG_NAME

if TYPE_CHECKING:
    import httpx

API_HOST: Final = "https://api.github.com"
ARCHIVE_HOST: Final = "https://codeload.github.com"
MAX_ARCHIVE_BYTES: Final = 512 << 20
MAX_UNPACKED_BYTES: Final = 2 << 30
"""Maximum total size of an archive's content, including entries outside the folder."""
MAX_ENTRIES: Final = 100_000
"""Maximum number of files and directories, including those outside the folder."""
MAX_HEADER_BYTES: Final = 1 << 20
"""Maximum total size of the headers of one entry."""
TIMEOUT_S: Final = 300.0
"""Seconds for each request."""

_FORM: Final = "https://github.com/<owner>/<repo>/tree/<ref>/<folder>"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_RETRY_AFTER: Final = re.compile(r"[0-9]{1,5}")
"""Seconds that a host asks a client to wait, at most about a day."""
_SHA_MEDIA_TYPE: Final = "application/vnd.github.sha"
_MAX_TEXT_BYTES = 64 << 10
_MAX_REDIRECTS = 5
_SILENCE_S = 30.0
"""Longest silence of a public host, in seconds."""
_DAMAGE: Final = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    ValueError,
    RecursionError,
)
"""Exceptions from unpacking an incomplete or damaged archive."""


@attrs.frozen
class _Address:
    """A parsed address; ``parts`` are the segments of the ref, then of the folder."""

    url: str
    owner: str
    repo: str
    parts: tuple[str, ...]


@attrs.frozen
class _Folder:
    """A folder at a commit; ``parts`` are empty for the whole repository."""

    address: _Address
    commit: str
    parts: tuple[str, ...]

    def path_in(self, home: Path) -> Path:
        address = self.address
        return home.joinpath("worlds", address.owner, address.repo, self.commit, *self.parts)

    def __str__(self) -> str:
        where = "/".join(self.parts) or "the top folder"
        return f"{where} of {self.address.owner}/{self.address.repo} at {self.commit[:12]}"


def fetch_world(url: str) -> Path:
    """Return a world directory with the content of a GitHub folder, downloading it if needed.

    A ref is resolved on every call. A full commit id is not resolved, so the call works offline
    once the folder is stored.

    Args:
        url: ``https://github.com/<owner>/<repo>/tree/<ref>/<folder>``; a ref may contain slashes,
            and without a folder the whole repository is the world.

    Raises:
        ConfigError: The address does not have that form.
        FetchError: The folder does not exist, has no ``world.toml``, contains entries that cannot
            be unpacked safely, or the download failed; the partial folder was removed.
    """
    home = home_dir()
    folder = _resolve(_parse(url))
    destination = folder.path_in(home)
    if not _is_complete(destination):
        with _staging(home / "worlds", url) as staging:
            _fetch(folder, staging)
            _publish(staging / "folder", destination)
    return destination


def _is_complete(directory: Path) -> bool:
    return (directory / CONFIG_NAME).is_file()


# --- the address ----------------------------------------------------------------------------


def _parse(url: str) -> _Address:
    split = urlsplit(url)
    host = split.netloc.lower().removeprefix("www.")
    parts = [unquote(part) for part in split.path.strip("/").split("/")]
    if split.scheme.lower() == "https" and host == "github.com" and len(parts) >= 4:
        owner, repo, kind, *rest = parts
        if kind == "tree" and all(map(_NAME.fullmatch, (owner, repo))) and all(map(_is_safe, rest)):
            return _Address(url, owner, repo, tuple(rest))
    raise mismatch("dir", _FORM, url)


def _is_safe(part: str) -> bool:
    return part not in ("", ".", "..") and not re.search(r"[\x00-\x1f/\\]", part)


def _resolve(address: _Address) -> _Folder:
    """Find the end of the ref in the address, and the commit that it names."""
    first, *rest = address.parts
    if _COMMIT.fullmatch(first):
        return _Folder(address, first, tuple(rest))
    refusal: FetchError | None = None
    for length in range(1, len(address.parts) + 1):
        ref = "/".join(address.parts[:length])
        try:
            commit = _find_commit(ref, address)
        except FetchError as error:
            # 404: no such repository, or a private one; 422: no such ref in it.
            if error.status not in (404, 422):
                raise
            refusal = refusal or error
        else:
            return _Folder(address, commit, address.parts[length:])
    raise FetchError(
        f"{address.owner}/{address.repo} has no branch, tag or commit {first!r}, or is not public",
        url=refusal.url if refusal else None,
        status=refusal.status if refusal else None,
    ) from refusal


def _find_commit(ref: str, address: _Address) -> str:
    url = f"{API_HOST}/repos/{address.owner}/{address.repo}/commits/{quote(ref)}"
    answer = io.BytesIO()
    _download(url, answer, _MAX_TEXT_BYTES, accept=_SHA_MEDIA_TYPE)
    text = answer.getvalue().decode(errors="replace").strip()
    if not _COMMIT.fullmatch(text):
        raise FetchError(f"the host did not answer with a commit: {text[:80]!r}", url=url)
    return text


# --- download and unpacking -----------------------------------------------------------------


@contextlib.contextmanager
def _staging(worlds: Path, url: str) -> Iterator[Path]:
    """Provide a private directory in the file system of the cache; remove it afterwards."""
    try:
        worlds.mkdir(parents=True, exist_ok=True)
        sweep_partials(worlds)
        with partial_tree(worlds, "fetch") as staging:
            yield staging
    except OSError as error:
        if isinstance(error, FetchError):
            raise
        raise FetchError(f"the world cannot be stored: {error}", url=url) from error


def _fetch(folder: _Folder, staging: Path) -> None:
    address = folder.address
    url = f"{ARCHIVE_HOST}/{address.owner}/{address.repo}/tar.gz/{folder.commit}"
    archive = staging / "archive.tar.gz"
    with archive.open("wb") as sink:
        _download(url, sink, MAX_ARCHIVE_BYTES)
    try:
        _unpack(archive, folder, staging / "folder")
    except _DAMAGE as error:
        raise FetchError(f"the archive is damaged: {error}", url=url) from error
    if not (staging / "folder").is_dir():
        raise FetchError(f"there is no folder {folder}", url=address.url)
    if not _is_complete(staging / "folder"):
        raise FetchError(f"{folder} is not a world: it has no {CONFIG_NAME}", url=address.url)


def _unpack(archive: Path, folder: _Folder, target: Path) -> None:
    url = folder.address.url
    with gzip.GzipFile(archive) as file:
        content = _Content(file, url)
        with tarfile.TarFile(fileobj=content, tarinfo=_Entry) as tar:  # type: ignore[arg-type]
            count = 0
            while member := tar.next():
                count += 1
                if count > MAX_ENTRIES:
                    raise FetchError(f"the repository has over {MAX_ENTRIES} entries", url=url)
                _unpack_member(tar, member, target, folder)
                # tarfile would keep all entries, each with the content of all previous headers.
                tar.members.clear()  # type: ignore[attr-defined]
                tar.pax_headers = {}
        while content.read(1 << 16):
            pass  # the checksum comes after the last byte


class _Content:
    """The unpacked content of an archive, for ``tarfile``, with limits against archive bombs.

    Args:
        file: The archive.
        url: Origin of the archive, for errors.
    """

    def __init__(self, file: gzip.GzipFile, url: str) -> None:
        self._file = file
        self._url = url
        self._position = 0
        self._header_left: int | None = None

    def tell(self) -> int:
        """Return the number of bytes read."""
        return self._position

    def seek(self, position: int) -> None:
        """Read up to a position; ``tarfile`` never seeks backwards."""
        while self._position < position and self.read(min(1 << 16, position - self._position)):
            pass

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, or the remaining bytes if there are fewer.

        Raises:
            FetchError: The content exceeds a limit.
        """
        if self._header_left is not None:
            self._header_left -= size
            if self._header_left < 0:
                self._refuse(f"has a header larger than {MAX_HEADER_BYTES} bytes")
        data = self._file.read(size)
        self._position += len(data)
        if self._position > MAX_UNPACKED_BYTES:
            self._refuse(f"is larger than {MAX_UNPACKED_BYTES} bytes")
        return data

    @contextlib.contextmanager
    def header(self) -> Iterator[None]:
        """Count the bytes read as headers of one entry, which ``tarfile`` keeps in memory."""
        if self._header_left is not None:  # a header that extends the next one
            yield
            return
        self._header_left = MAX_HEADER_BYTES
        try:
            yield
        finally:
            self._header_left = None

    def _refuse(self, what: str) -> NoReturn:
        raise FetchError(f"the repository {what}", url=self._url)


class _Entry(tarfile.TarInfo):
    """An entry whose name and extended headers are limited in size."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> Self:
        """Return the next entry."""
        assert isinstance(tar.fileobj, _Content)
        with tar.fileobj.header():
            return super().fromtarfile(tar)


def _unpack_member(
    tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, folder: _Folder
) -> None:
    # All entries are below one directory, which GitHub names after the commit.
    top, *parts = member.name.split("/")
    depth = len(folder.parts)
    if tuple(parts[:depth]) != folder.parts:
        return
    if not all(map(_is_safe, (top, *parts))):
        raise FetchError(f"the archive has an unsafe path: {member.name!r}", url=folder.address.url)
    if len(parts) > MAX_DEPTH:
        raise FetchError(
            f"the archive has a path of more than {MAX_DEPTH} names: {member.name[:80]!r}...",
            url=folder.address.url,
        )
    path = target.joinpath(*parts[depth:])
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        raise FetchError(
            f"{folder} contains {'/'.join(parts)!r}, which is neither a file nor a directory",
            url=folder.address.url,
            hint="a world with links in it can only be used from your own checkout",
        )
    content = tar.extractfile(member)
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_file(path, content, is_executable=bool(member.mode & 0o100))


def _write_file(path: Path, content: IO[bytes], *, is_executable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o777 if is_executable else 0o666)
    with open(fd, "wb") as file:  # noqa: PTH123 - it is a descriptor
        shutil.copyfileobj(content, file)
        file.flush()
        os.fsync(fd)


# --- the cache ------------------------------------------------------------------------------


def _publish(folder: Path, destination: Path) -> None:
    """Move a folder to its place in the cache, where it is complete or absent."""
    with TreeWalk(open_directory(folder)) as walk:
        os.fsync(walk.fd)
        for entry in walk:
            if entry.kind == "directory":
                os.fsync(walk.enter(entry.name))
    destination.mkdir(parents=True, exist_ok=True)
    _graft(folder, destination)
    fsync_directory(destination)
    fsync_directory(destination.parent)


def _graft(source: Path, target: Path) -> None:
    """Move ``source`` onto ``target``, its ``world.toml`` last.

    The target is not empty if a folder below it was fetched before or is being fetched now: that
    folder is complete and possibly in use, so it stays.
    """
    try:
        source.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not _is_complete(target):
            for entry in sorted(source.iterdir(), key=lambda path: path.name == CONFIG_NAME):
                _graft(entry, target / entry.name)


# --- HTTP -----------------------------------------------------------------------------------


def _download(url: str, sink: BinaryIO, max_bytes: int, *, accept: str = "*/*") -> None:
    """Write the answer of a public host into ``sink``, without decoding it.

    Certificates are verified and proxies from the environment are used. A redirect is followed only
    to HTTPS or within the requested host.

    Args:
        url: The requested address.
        sink: An open file; after an error it contains a part of the answer.
        max_bytes: Maximum size of the answer.
        accept: Requested media type.

    Raises:
        FetchError: There was no answer, a status other than 200, too many bytes, or no time left.
    """
    import httpx

    deadline = time.monotonic() + TIMEOUT_S
    headers = {"Accept": accept, "Accept-Encoding": "identity"}
    try:
        with httpx.Client(timeout=min(TIMEOUT_S, _SILENCE_S), headers=headers) as client:
            response = _follow(client, client.build_request("GET", url))
            try:
                _copy(response, sink, max_bytes, deadline)
            finally:
                response.close()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        hint = "is the network up, and does the address open in a browser?"
        raise FetchError(f"the download failed: {reason}", url=url, hint=hint) from error


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
    wait = headers.get("retry-after", "")
    is_plausible = _RETRY_AFTER.fullmatch(wait) is not None  # it may also be a date
    when = f"in {wait} s" if is_plausible else "later, within an hour"
    return f"the host's limit for requests without an account is used up; try again {when}"
