"""Real git repositories, git's answers about them, and an https server for fetches."""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import os
import ssl
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

_NAMES = {f"GIT_{role}_NAME": "a" for role in ("AUTHOR", "COMMITTER")}
_EMAILS = {f"GIT_{role}_EMAIL": "a@b" for role in ("AUTHOR", "COMMITTER")}
_SETTINGS = {
    "protocol.file.allow": "always",
    "uploadpack.allowFilter": "true",
    "uploadpack.allowAnySHA1InWant": "true",
    "http.sslVerify": "false",
    "advice.detachedHead": "false",
    "init.defaultBranch": "main",
    "gc.auto": "0",
}


def git_env() -> dict[str, str]:
    """Return an environment in which git reads no settings of this machine."""
    env = {"PATH": os.environ["PATH"], "HOME": "/none", "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {**_NAMES, **_EMAILS, "GIT_CONFIG_COUNT": str(len(_SETTINGS)), "LC_ALL": "C"}
    for number, (key, value) in enumerate(_SETTINGS.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


def git(directory: Path, *arguments: str) -> str:
    """Run git in a directory and return its output; it must succeed."""
    command = ["git", "-C", str(directory), *arguments]
    done = subprocess.run(command, env=git_env(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def commit(directory: Path, **files: str) -> None:
    """Write files, ``__`` for ``/`` in their names, and commit them."""
    for name, text in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(directory, "add", ".")
    git(directory, "commit", "-q", "-m", " ".join(files))


def make_upstream(directory: Path, *options: str) -> Path:
    """Create a repository with three commits; the last two change ``a/x``."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(_packed_upstream(options))) as packed:
        packed.extractall(directory, filter="fully_trusted")
    return directory


@functools.cache
def _packed_upstream(options: tuple[str, ...]) -> bytes:
    """Return the repository as a tar file, because git needs seven processes to create it."""
    with tempfile.TemporaryDirectory() as place, io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w") as packed:
            packed.add(_commit_thrice(Path(place), options), arcname=".")
        return file.getvalue()


def _commit_thrice(directory: Path, options: tuple[str, ...]) -> Path:
    git(directory, "init", "-q", *options)
    commit(directory, a__x="one\n", b__c__y="two\n", top="three\n")
    commit(directory, a__x="four\n")
    commit(directory, a__x="five\n", d__z="six\n")
    return directory


QUESTIONS = (
    "status --porcelain=v2 --branch",
    "log --format=%H%s --all",
    "fsck",
    "show --stat HEAD",
    "worktree list --porcelain",
    "branch -a",
    "stash list",
    "ls-files -t",
)
ELSEWHERE = ("status --porcelain=v2 --branch", "fsck", "ls-files -t")
"""Commands that are repeated at another commit."""


def ask(repository: Path, workspace: Path, *more: str) -> dict[str, tuple[int, str]]:
    """Return exit status and answers of git, without upstream branches and paths of this machine.

    An archive has no remotes, so a branch has no upstream after a load.
    """
    answers = {}
    if (repository / ".gitmodules").exists():  # a slow shell script
        more = ("submodule status --recursive", *more)
    for question in (*QUESTIONS, *more, "checkout -q HEAD~1", *ELSEWHERE, "checkout -q -"):
        command = ["git", "-C", str(repository), *question.split()]
        done = subprocess.run(command, env=git_env(), capture_output=True, text=True, check=False)
        said = (done.stdout + done.stderr).replace(str(workspace), "WORKSPACE").splitlines()
        kept = [line for line in said if not line.startswith(("# branch.upstream", "# branch.ab"))]
        answers[f"{len(answers)} {question}"] = (done.returncode, "\n".join(kept))
    return answers


@contextlib.contextmanager
def serve(root: Path, key_dir: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve the repositories below a directory over https; yield the address and the requests."""
    requests: list[str] = []
    backend = Path(git(root, "--exec-path").strip()) / "git-http-backend"

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            requests.append(self.path)
            length = self.headers.get("Content-Length", "")
            env = {
                **git_env(),
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": length,
                "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            }
            body = self.rfile.read(int(length or 0))
            done = subprocess.run([backend], env=env, input=body, capture_output=True, check=True)
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            self.send_response(HTTPStatus.OK)
            for line in head.decode().splitlines():
                self.send_header(*line.split(": ", 1))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Suppress the log."""

    pem = key_dir / "key.pem"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    new += ["-nodes", "-subj", "/CN=127.0.0.1"]
    pem.write_bytes(subprocess.run([*new, "-keyout", "-"], capture_output=True, check=True).stdout)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
