"""World folders from GitHub, with a local server as a stand-in."""

import contextlib
import gzip
import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from clawblox.config import download
from clawblox.config.arguments import is_world_url
from clawblox.config.download import fetch_world
from clawblox.config.world_toml import read_world_config
from clawblox.errors import ConfigError, FetchError
from tests.support.waiting import HANG_S

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40
TOML = b'name = "Panda"\n'

Handler = BaseHTTPRequestHandler
Answer = Callable[[Handler], None]


class GitHub:
    """A stand-in for the API and the archive host that counts requests.

    Attributes:
        answers: The answers by path; other paths get 404.
        asked: The requested paths.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.accepted: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _handler(self) -> type[Handler]:
        hub = self

        class Each(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append(self.path)
                hub.accepted[self.path] = self.headers["Accept"]
                with contextlib.suppress(ConnectionError):
                    hub.answers.get(self.path, status(404))(self)

            def log_message(self, *_: object) -> None:
                pass

        return Each

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def has_ref(self, ref: str, commit: str = COMMIT, repo: str = "lab/worlds") -> None:
        self.answers[f"/api/repos/{repo}/commits/{ref}"] = says(commit.encode())

    def has_archive(self, data: bytes, commit: str = COMMIT, repo: str = "lab/worlds") -> None:
        self.answers[f"/archive/{repo}/tar.gz/{commit}"] = says(data)

    def fetch(self, where: str = "tree/main/panda") -> Path:
        return fetch_world(f"https://github.com/lab/worlds/{where}")


def says(body: bytes, *, code: int = 200, **headers: str) -> Answer:
    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def status(code: int, **headers: str) -> Answer:
    return says(b'{"message": "no"}', code=code, **headers)


def cut_short(body: bytes) -> Answer:
    return says(body[: len(body) // 2], Content_Length=str(len(body)))


@pytest.fixture
def hub(monkeypatch) -> Iterator[GitHub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    hub = GitHub()
    monkeypatch.setattr(download, "API_HOST", f"{hub.url}/api")
    monkeypatch.setattr(download, "ARCHIVE_HOST", f"{hub.url}/archive")
    hub.has_ref("main")
    hub.has_archive(archive(file("panda/world.toml", TOML), file("panda/sub/run.sh", b"#", 0o755)))
    yield hub
    hub.close()


@pytest.fixture
def home() -> Path:
    return Path(os.environ["CLAWBLOX_HOME"])


Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def file(name: str, content: bytes = b"", mode: int = 0o644, top: str = "worlds-0123/") -> Member:
    return member(top + name, size=len(content), mode=mode), content


def archive(*members: Member) -> bytes:
    """Return an archive in GitHub's form: a global header, then one directory with all files."""
    buffer = io.BytesIO()
    headers = {"comment": COMMIT}
    with tarfile.open(
        fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT, pax_headers=headers
    ) as tar:
        tar.addfile(member("worlds-0123", tarfile.DIRTYPE, mode=0o755))
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def everything_in(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


# --- addresses ------------------------------------------------------------------------------


def test_an_address_is_distinguished_from_a_path():
    assert is_world_url("https://github.com/a/b/tree/main/c")
    assert is_world_url("HTTPS://GitHub.com/a/b")
    assert is_world_url("http://example.org")
    for path in ("worlds/panda", "/abs", "https", "C:/x", "./https://x", ""):
        assert not is_world_url(path)


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/lab/worlds",
        "https://github.com/lab/worlds/tree",
        "https://github.com/lab/worlds/tree/",
        "https://github.com/lab/worlds/blob/main/panda/world.toml",
        "https://gitlab.com/lab/worlds/tree/main/panda",
        "https://github.com.evil.org/lab/worlds/tree/main/panda",
        "https://me@github.com/lab/worlds/tree/main/panda",
        "http://github.com/lab/worlds/tree/main/panda",
        "https://github.com/../worlds/tree/main/panda",
        "https://github.com/lab/../tree/main/panda",
        "https://github.com/lab/%2e%2e/tree/main/panda",
        "https://github.com/lab/worlds/tree/main/../panda",
        "https://github.com/lab/worlds/tree/main/%2E%2E/panda",
        "https://github.com/lab/worlds/tree/main/a%2F..%2F..%2Fb",
        "https://github.com/lab/worlds/tree/main//panda",
        "https://github.com/lab/worlds/tree/main/a%00b",
        "https://github.com/la b/worlds/tree/main/panda",
    ],
)
def test_an_address_of_another_form_is_refused_without_a_request(hub, home, url):
    with pytest.raises(ConfigError, match=r"^dir: must be https://github\.com/") as caught:
        fetch_world(url)
    assert (caught.value.key, caught.value.value) == ("dir", url)
    assert hub.asked == []
    assert list(home.iterdir()) == []


# --- fetched files --------------------------------------------------------------------------


def test_a_folder_becomes_a_world_directory_named_after_its_commit(hub, home):
    world = hub.fetch()
    assert world == home / "worlds" / "lab" / "worlds" / COMMIT / "panda"
    assert read_world_config(world).name == "Panda"
    assert everything_in(home) == {
        str((world / name).relative_to(home)) for name in ("world.toml", "sub/run.sh")
    }
    assert hub.accepted["/api/repos/lab/worlds/commits/main"] == "application/vnd.github.sha"


def test_files_of_a_killed_download_are_removed_by_the_next_download(hub, home):
    left = home / "worlds" / f".fetch.{2**22 + 1}-1.0badcafe.partial"
    left.mkdir(parents=True)
    (left / "archive.tar.gz").touch()
    hub.fetch()
    assert list(home.glob("worlds/.*")) == []


def test_only_the_folder_is_unpacked(hub, home):
    hub.has_archive(
        archive(
            file("world.toml", b"name = 'top'"),
            file("panda/world.toml", TOML),
            file("pandas/world.toml", b"name = 'other'"),
            file("server.py"),
            (member("worlds-0123/link", tarfile.SYMTYPE, linkname="/etc/passwd"), b""),
        )
    )
    assert everything_in(hub.fetch()) == {"world.toml"}
    assert len(everything_in(home)) == 1


def test_the_home_comes_from_the_environment_or_the_user(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAWBLOX_HOME", str(tmp_path / "b"))
    assert hub.fetch().is_relative_to(tmp_path / "b" / "worlds")
    monkeypatch.setenv("CLAWBLOX_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "c"))
    assert hub.fetch().is_relative_to(tmp_path / "c" / ".clawblox" / "worlds")


def test_only_the_executable_bit_of_modes_is_kept(hub):
    hub.has_archive(
        archive(
            file("panda/world.toml", TOML, 0o000),
            file("panda/run.sh", b"#", 0o6755),
            file("panda/data", b"#", 0o4666),
        )
    )
    world = hub.fetch()
    mask = os.umask(0o022)
    os.umask(mask)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in world.iterdir()}
    assert modes == {
        "world.toml": 0o666 & ~mask,
        "run.sh": 0o777 & ~mask,
        "data": 0o666 & ~mask,
    }


def test_an_address_may_be_a_whole_repository(hub):
    hub.has_archive(archive(file("world.toml", TOML), file("sub/x")))
    world = hub.fetch("tree/main")
    assert world.name == COMMIT
    assert everything_in(world) == {"world.toml", "sub/x"}


def test_a_ref_may_have_slashes_and_a_folder_may_be_quoted(hub):
    hub.has_ref("feature/new/arms", OTHER)
    hub.has_archive(archive(file("my worlds/caf\u00e9/world.toml", TOML)), OTHER)
    world = hub.fetch("tree/feature/new/arms/my%20worlds/caf%C3%A9")
    assert world.parts[-3:] == (OTHER, "my worlds", "caf\u00e9")
    assert [path.rpartition("/commits/")[2] for path in hub.asked[:3]] == [
        "feature",
        "feature/new",
        "feature/new/arms",
    ]


def test_a_ref_that_github_calls_unprocessable_is_not_a_ref(hub):
    hub.answers["/api/repos/lab/worlds/commits/release"] = status(422)
    hub.has_ref("release/1")
    assert hub.fetch("tree/release/1/panda").name == "panda"


def test_a_stored_full_commit_id_needs_no_network(hub):
    world = hub.fetch(f"tree/{COMMIT}/panda")
    assert hub.asked == [f"/archive/lab/worlds/tar.gz/{COMMIT}"]
    hub.answers.clear()
    assert hub.fetch(f"tree/{COMMIT}/panda") == world
    assert len(hub.asked) == 1


def test_a_branch_is_resolved_again_and_downloaded_if_it_moved(hub):
    first = hub.fetch()
    assert hub.fetch() == first
    assert len([path for path in hub.asked if "archive" in path]) == 1
    hub.has_ref("main", OTHER)
    hub.has_archive(archive(file("panda/world.toml", b"name = 'Later'")), OTHER)
    assert read_world_config(hub.fetch()).name == "Later"
    assert read_world_config(first).name == "Panda"


# --- the cache ------------------------------------------------------------------------------


def test_nested_worlds_can_be_fetched_in_any_order(hub):
    hub.has_archive(
        archive(
            file("world.toml", b"name = 'top'"),
            file("lib/a.py"),
            file("lib/panda/world.toml", TOML),
            file("lib/panda/b.py"),
        )
    )
    inner = hub.fetch("tree/main/lib/panda")
    (inner / "recording").write_text("mine")
    (inner / "b.py").write_text("changed")
    outer = hub.fetch("tree/main")
    assert inner == outer / "lib" / "panda"
    assert everything_in(outer) == {
        "world.toml",
        *("lib/a.py", "lib/panda/world.toml", "lib/panda/b.py", "lib/panda/recording"),
    }
    assert (inner / "b.py").read_text() == "changed"
    assert hub.fetch("tree/main/lib/panda") == inner


def test_remnants_of_an_interrupted_fetch_are_replaced(hub, home):
    left = home / "worlds" / "lab" / "worlds" / COMMIT / "panda"
    (left / "sub").mkdir(parents=True)
    (left / "sub" / "run.sh").write_text("hal")
    world = hub.fetch()
    assert world == left
    assert (world / "sub" / "run.sh").read_text() == "#"
    assert everything_in(world) == {"world.toml", "sub/run.sh"}


def test_a_world_that_could_not_be_completed_has_no_world_toml(hub, home):
    obstacle = home / "worlds" / "lab" / "worlds" / COMMIT / "panda" / "zone"
    obstacle.mkdir(parents=True)
    (obstacle / "x").write_text("")
    hub.has_archive(archive(file("panda/world.toml", TOML), file("panda/a"), file("panda/zone")))
    with pytest.raises(FetchError, match="directory"):
        hub.fetch()
    assert "world.toml" not in everything_in(obstacle.parent)


@pytest.mark.thorough
def test_concurrent_fetches_of_a_folder_are_all_complete(hub, home):
    hub.has_archive(
        archive(file("panda/world.toml", TOML), *(file(f"panda/{n}") for n in range(99)))
    )
    barrier = threading.Barrier(6)
    results: list[Path] = []

    def fetch() -> None:
        barrier.wait(HANG_S)
        world = hub.fetch()
        results.append(world)
        assert len(everything_in(world)) == 100

    threads = [threading.Thread(target=fetch) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    assert len(set(results)) == 1
    assert len(everything_in(home)) == 100


# --- answers of the host --------------------------------------------------------------------


def refused(hub: GitHub, home: Path, where: str = "tree/main/panda") -> FetchError:
    """Return the error of a fetch, which has left no file behind."""
    with pytest.raises(FetchError) as caught:
        hub.fetch(where)
    assert everything_in(home) == set()
    assert list(home.glob("worlds/.*")) == []
    return caught.value


def test_the_error_names_a_missing_repository_or_ref(hub, home):
    error = refused(hub, home, "tree/nope/panda")
    assert "lab/worlds has no branch, tag or commit 'nope'" in error.message
    assert error.status == 404
    assert error.url == f"{hub.url}/api/repos/lab/worlds/commits/nope"


def test_the_error_names_a_missing_commit(hub, home):
    error = refused(hub, home, f"tree/{OTHER}/panda")
    assert error.status == 404
    assert OTHER in error.url


def test_the_error_names_a_missing_folder(hub, home):
    error = refused(hub, home, "tree/main/pandas")
    assert f"no folder pandas of lab/worlds at {COMMIT[:12]}" in error.message
    assert "tree/main/pandas" in str(error)


def test_a_file_in_place_of_a_folder_is_refused(hub, home):
    assert "no folder" in refused(hub, home, "tree/main/panda/world.toml").message


def test_the_error_names_a_folder_without_a_world(hub, home):
    error = refused(hub, home, "tree/main/panda/sub")
    assert "panda/sub of lab/worlds" in error.message
    assert "has no world.toml" in error.message


@pytest.mark.parametrize("code", [403, 429])
def test_the_rate_limit_error_contains_the_end_time_and_advice(hub, home, code):
    api = "/api/repos/lab/worlds/commits/main"
    hub.answers[api] = status(code, X_RateLimit_Remaining="0")
    error = refused(hub, home)
    assert error.status == code
    assert "limit" in error.hint
    hub.answers[api] = status(code, Retry_After="60")
    assert "in 60 s" in refused(hub, home).hint
    for wait in ("Wed, 21 Oct 2026 07:28:00 GMT", "-1", "1" * 400):
        hub.answers[api] = status(code, Retry_After=wait)
        assert wait not in refused(hub, home).hint


@pytest.mark.parametrize("code", [401, 403, 409, 500, 503])
def test_the_error_for_an_unexpected_status_names_it(hub, home, code):
    hub.answers["/api/repos/lab/worlds/commits/main"] = status(code)
    error = refused(hub, home)
    assert error.status == code
    assert f"status: {code}" in str(error)


@pytest.mark.parametrize("text", [b"", b"<html>log in</html>", b"0123", COMMIT.upper().encode()])
def test_an_answer_that_is_not_a_commit_is_refused(hub, home, text):
    hub.answers["/api/repos/lab/worlds/commits/main"] = says(text)
    assert "did not answer with a commit" in refused(hub, home).message


def test_the_error_for_an_unreachable_host_has_a_hint(hub, monkeypatch):
    monkeypatch.setattr(download, "API_HOST", "http://127.0.0.1:1")
    with pytest.raises(FetchError, match="Connection refused") as caught:
        hub.fetch()
    assert "network" in caught.value.hint


def test_a_host_that_falls_silent_is_an_error(hub, home, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT_S", 0.1)
    is_over = threading.Event()
    hub.answers["/api/repos/lab/worlds/commits/main"] = lambda _: is_over.wait(10)
    error = refused(hub, home)
    is_over.set()
    assert "timed out" in error.message


def test_a_download_that_trickles_ends_at_its_deadline(hub, home, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT_S", 0.2)

    def trickle(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(500):
            handler.wfile.write(b"x")
            if is_over.wait(0.01):
                break

    is_over = threading.Event()
    hub.answers[f"/archive/lab/worlds/tar.gz/{COMMIT}"] = trickle
    try:
        assert "too slow" in refused(hub, home).message
    finally:
        is_over.set()


def test_a_redirect_within_the_host_is_followed(hub):
    moved = "/api/repositories/7/commits/main"
    hub.answers[moved] = says(COMMIT.encode())
    hub.answers["/api/repos/lab/worlds/commits/main"] = status(301, Location=moved)
    assert hub.fetch().name == "panda"


def test_a_redirect_to_another_host_without_tls_is_refused(hub, home):
    with contextlib.closing(GitHub()) as other:
        other.has_ref("main")
        target = f"{other.url}/api/repos/lab/worlds/commits/main"
        hub.answers["/api/repos/lab/worlds/commits/main"] = status(302, Location=target)
        assert f"the host redirects to {target}" in refused(hub, home).message
        assert other.asked == []


def test_an_endless_redirect_is_refused(hub, home):
    api = "/api/repos/lab/worlds/commits/main"
    hub.answers[api] = status(302, Location=api)
    assert "redirects more than 5 times" in refused(hub, home).message


# --- hostile archives -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "most", "complaint"),
    [
        ("MAX_ARCHIVE_BYTES", 100, "larger than 100 bytes"),
        ("MAX_UNPACKED_BYTES", 2000, "larger than 2000 bytes"),
        ("MAX_ENTRIES", 2, "over 2 entries"),
        ("MAX_HEADER_BYTES", 600, "header larger than 600 bytes"),
    ],
)
def test_downloads_beyond_the_limits_are_refused(hub, home, monkeypatch, limit, most, complaint):
    monkeypatch.setattr(download, limit, most)
    assert complaint in refused(hub, home).message


def test_entries_outside_the_folder_count_towards_the_limits(hub, home, monkeypatch):
    monkeypatch.setattr(download, "MAX_UNPACKED_BYTES", 1 << 20)
    bomb = file("elsewhere/zeros", bytes(4 << 20))
    hub.has_archive(archive(bomb, file("panda/world.toml", TOML)))
    error = refused(hub, home)
    assert "larger than" in error.message


def test_a_truncated_transfer_is_refused(hub, home):
    whole = archive(file("panda/world.toml", TOML), file("panda/x", os.urandom(100_000)))
    hub.answers[f"/archive/lab/worlds/tar.gz/{COMMIT}"] = cut_short(whole)
    assert "failed" in refused(hub, home).message


WHOLE = archive(file("panda/world.toml", TOML), file("panda/x", os.urandom(50_000)))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>",
        WHOLE[: len(WHOLE) // 2],
        WHOLE[:-4],
        WHOLE[:-8] + b"\0" * 8,
        WHOLE[:1000] + bytes([WHOLE[1000] ^ 0xFF]) + WHOLE[1001:],
        gzip.compress(b"not a tar archive" * 100),
        gzip.compress(b""),
    ],
    ids=["empty", "html", "half", "no size", "wrong sum", "flipped", "no tar", "nothing"],
)
def test_a_damaged_archive_is_refused(hub, home, data):
    hub.has_archive(data)
    assert "damaged" in refused(hub, home).message


LINK = tarfile.SYMTYPE


@pytest.mark.parametrize(
    ("info", "complaint"),
    [
        (member("w/panda/l", LINK, linkname="world.toml"), "neither a file nor a directory"),
        (member("w/panda/l", LINK, linkname="/etc/passwd"), "neither a file nor a directory"),
        (member("w/panda/h", tarfile.LNKTYPE, linkname="w/panda/world.toml"), "neither a file"),
        (member("w/panda/f", tarfile.FIFOTYPE), "neither a file"),
        (member("w/panda/c", tarfile.CHRTYPE, devmajor=1, devminor=3), "neither a file"),
        (member("w/panda/b", tarfile.BLKTYPE), "neither a file"),
        (member("w/panda/../../../x"), "unsafe path"),
        (member("w/panda/.."), "unsafe path"),
        (member("w/panda/./x"), "unsafe path"),
        (member("w/panda//x"), "unsafe path"),
        (member("../panda/x"), "unsafe path"),
        (member("/panda/x"), "unsafe path"),
        (member("w/panda/a\\b"), "unsafe path"),
        (member("w/panda/a\nb"), "unsafe path"),
        (member("w/panda/world.toml"), "File exists"),
        (member("w/panda/world.toml/x"), "cannot be stored"),
        (member("w/panda/" + "x" * 300), "name too long"),
    ],
    ids=lambda value: value.name[:20] if isinstance(value, tarfile.TarInfo) else "",
)
def test_an_archive_with_other_entries_than_plain_files_is_refused(hub, home, info, complaint):
    hub.has_archive(archive(file("panda/world.toml", TOML), (info, b"")))
    error = refused(hub, home)
    assert complaint.lower() in str(error).lower()
    assert not (home.parent / "x").exists()


def test_a_link_with_the_name_of_a_directory_is_refused(hub, home, tmp_path):
    hub.has_archive(
        archive(
            file("panda/world.toml", TOML),
            (member("worlds-0123/panda/d", LINK, linkname=str(tmp_path)), b""),
            file("panda/d/escaped"),
        )
    )
    refused(hub, home)
    assert list(tmp_path.iterdir()) == []


def test_a_sparse_file_with_a_hidden_size_is_refused(hub, home):
    info = member("worlds-0123/panda/huge", size=512)
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "worlds-0123/panda/huge",
        "GNU.sparse.realsize": str(8 << 20),
    }
    hub.has_archive(archive(file("panda/world.toml", TOML), (info, b"0\n".ljust(512, b"\0"))))
    assert "neither a file nor a directory" in refused(hub, home).message


def raw_header(kind: bytes, content: bytes, fields: bytes = b"") -> bytes:
    """Return the blocks of a header of any kind, even one that ``tarfile`` would not write."""
    block = bytearray(member("x", kind, size=len(content)).tobuf(tarfile.GNU_FORMAT))
    block[386 : 386 + len(fields)] = fields
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + content + bytes(-len(content) % 512)


MORE = 4 << 20
PAX = b"%d comment=" % MORE
PAX += b"x" * (MORE - len(PAX) - 1) + b"\n"
SPARSE_1_0 = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
HEADERS = {
    "pax": raw_header(tarfile.XHDTYPE, PAX),
    "pax, global": raw_header(tarfile.XGLTYPE, PAX),
    "pax, of Solaris": raw_header(tarfile.SOLARIS_XHDTYPE, PAX),
    "a long name": raw_header(tarfile.GNUTYPE_LONGNAME, b"x" * MORE),
    "a long link": raw_header(tarfile.GNUTYPE_LONGLINK, b"x" * MORE),
    "a chain": raw_header(tarfile.GNUTYPE_LONGNAME, b"x" * (128 << 10)) * 16,
    "a sparse map": raw_header(tarfile.GNUTYPE_SPARSE, b"", bytes(96) + b"\1")
    + (bytes(504) + b"\1" + bytes(7)) * (MORE // 512),
    "a sparse map in the content": raw_header(tarfile.XHDTYPE, SPARSE_1_0)
    + raw_header(tarfile.REGTYPE, b"%d\n" % MORE + b"0\n" * (MORE // 2)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("is_first", [False, True])
def test_a_header_that_would_fill_the_memory_is_refused(hub, home, header, is_first):
    plain = gzip.decompress(archive(file("panda/world.toml", TOML), file("panda/x")))
    place = 0 if is_first else plain.index(b"worlds-0123/panda/x")
    hub.has_archive(gzip.compress(plain[:place] + header + plain[place:], 1))
    assert "header larger than 1048576 bytes" in refused(hub, home).message


def test_the_content_of_headers_is_not_kept(hub, home):
    kept: list[int] = []

    class Watched(list[tarfile.TarInfo]):
        def append(self, info: tarfile.TarInfo) -> None:
            super().append(info)
            kept.append(len(self))

    original = tarfile.TarFile.__init__

    def init(self, *arguments, **options):
        original(self, *arguments, **options)
        self.members = Watched(self.members)

    hub.has_archive(archive(file("panda/world.toml", TOML), *(file(f"panda/{n}") for n in "abcd")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tarfile.TarFile, "__init__", init)
        hub.fetch()
    assert max(kept) == 1


def test_a_home_that_cannot_be_written_is_an_error(hub, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CLAWBLOX_HOME", str(tmp_path / "file"))
    with pytest.raises(FetchError, match="cannot be stored"):
        hub.fetch()
