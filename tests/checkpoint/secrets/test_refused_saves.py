"""Saves with a secret: the refusal does not show it, and findings can be allowed."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from clawblox import World
from clawblox.checkpoint import (
    Allowance,
    CheckpointError,
    CheckpointSecretError,
    read_metadata,
    scan_checkpoint,
)
from tests.checkpoint.runs import Run, fake_token
from tests.support.worlds import make_world


def expect_refusal(run: Run, **options: object) -> CheckpointSecretError:
    with pytest.raises(CheckpointSecretError) as caught:
        run.save(**options)
    assert run.archives() == []
    assert run.partials() == []
    return caught.value


def place_in_workspace(run: Run, token: str) -> None:
    (run.workspace / "notes.txt").write_text(f"first\ntoken: {token}\n")


def place_in_snapshot(run: Run, token: str) -> None:
    run.snapshot.write_text(json.dumps({"chat": [token]}))


def place_in_name(run: Run, token: str) -> None:
    (run.workspace / token).write_text("nothing")


def place_nowhere(run: Run, token: str) -> None:
    pass


@pytest.mark.parametrize(
    ("place", "metadata", "where"),
    [
        (place_in_workspace, {}, ["agents/rocky/workspace/notes.txt"]),
        (place_in_snapshot, {}, ["world.snapshot"]),
        (place_in_name, {}, ["metadata.json", "agents/rocky/workspace/ghp_... (40 bytes)"]),
        (place_nowhere, {"note": fake_token()}, ["metadata.json"]),
    ],
)
def test_a_secret_anywhere_is_refused_and_never_shown(
    run: Run, place: Callable[[Run, str], None], metadata: dict[str, object], where: list[str]
):
    token = fake_token()
    place(run, token)
    error = expect_refusal(run, metadata=metadata)
    assert [finding.path for finding in error.findings] == where
    for text in (str(error), repr(error), repr(error.findings), repr(error.args)):
        assert token not in text
    assert metadata or token not in read_locals(error)
    assert "allow=" in str(error.hint)


def read_locals(error: BaseException) -> str:
    """Return the package's frames with their locals from a traceback."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames = [frame for frame in shown.stack if "/clawblox/checkpoint/" in frame.filename]
    assert frames
    return "\n".join(str(frame.locals) for frame in frames)


def test_a_secret_in_a_name_is_masked_if_the_content_is_refused(run: Run):
    name, content = fake_token(1), fake_token(2)
    (run.workspace / name).write_text(content)
    error = expect_refusal(run)
    assert len(error.findings) == 3
    assert name not in f"{error!s} {error.findings!r} {read_locals(error)}"
    undecodable = run.workspace / f"{name}\n\udcff"
    (run.workspace / name).rename(undecodable)
    undecodable.write_text("nothing")
    with pytest.raises(CheckpointError, match="names that are not allowed") as caught:
        run.save()
    assert name not in str(caught.value)
    assert "(40 bytes)\\n" in caught.value.message


def test_an_allowance_lets_one_finding_through_and_is_recorded(run: Run):
    place_in_workspace(run, fake_token())
    (finding,) = expect_refusal(run).findings
    allowed = {
        "path": finding.path,
        "rule": finding.rule,
        "fingerprint": finding.fingerprint,
        "reason": "it opens nothing",
    }
    path = run.save(allow=[Allowance(**allowed)])
    (recorded,) = read_metadata(path)["secret_scan"]["allowed"]
    assert recorded.items() >= allowed.items()
    (run.workspace / "more.txt").write_text(fake_token(2))
    with pytest.raises(CheckpointSecretError) as caught:
        run.save("b", allow=[Allowance(**allowed)])
    assert [each.path for each in caught.value.findings] == ["agents/rocky/workspace/more.txt"]


def test_the_reason_of_an_allowance_is_searched(run: Run):
    place_in_workspace(run, fake_token())
    (finding,) = expect_refusal(run).findings
    allowance = Allowance(
        path=finding.path,
        rule=finding.rule,
        fingerprint=finding.fingerprint,
        reason=f"better than {fake_token(2)}",
    )
    error = expect_refusal(run, allow=[allowance])
    assert [each.path for each in error.findings] == ["metadata.json"]


def test_the_operator_allows_findings_in_a_file_of_the_run(run: Run):
    place_in_workspace(run, fake_token())
    (finding,) = expect_refusal(run).findings
    entry = {key: getattr(finding, key) for key in ("path", "rule", "fingerprint")}
    (run.dir / "secret-allow.json").write_text(json.dumps([{**entry, "reason": "a sample"}]))
    assert read_metadata(run.save())["secret_scan"]["allowed"]


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_a_secret_that_has_no_shape_is_found_when_it_is_known(
    run: Run, monkeypatch: pytest.MonkeyPatch, how: str
):
    secret = "correct horse " + "battery staple"
    (run.workspace / "notes.txt").write_text(f"The word is {secret}.")
    if how == "argument":
        error = expect_refusal(run, known_secrets=[secret])
    else:
        monkeypatch.setenv("WORLD_PASSWORD", secret)
        error = expect_refusal(run)
    assert secret not in f"{error!s} {error!r} {error.findings!r} {read_locals(error)}"


def test_the_operator_token_of_a_running_world_is_known(run: Run, tmp_path: Path):
    world = World(make_world(tmp_path))
    try:
        started = world.start(run_dir=run.dir)
        environ = Path(f"/proc/{started.pid}/environ").read_bytes().split(b"\0")
        (token,) = [one for one in environ if one.startswith(b"WORLD_OPERATOR_TOKEN=")]
        (run.workspace / "env.txt").write_bytes(b"I saw " + token.partition(b"=")[2] + b" there")
        error = expect_refusal(run)
    finally:
        world.close()
    assert [finding.path for finding in error.findings] == ["agents/rocky/workspace/env.txt"]
    run.save("later")


def test_an_archive_can_be_searched_again(run: Run):
    (run.workspace / "notes.txt").write_text("the plain word is xylophone-quartz-77")
    path = run.save()
    assert scan_checkpoint(path).findings == ()
    found = scan_checkpoint(path, known_secrets=["xylophone-quartz-77"])
    assert [each.path for each in found.findings] == ["agents/rocky/workspace/notes.txt"]
    (finding,) = found.findings
    allowance = Allowance(
        path=finding.path, rule=finding.rule, fingerprint=finding.fingerprint, reason="plain"
    )
    again = scan_checkpoint(path, known_secrets=["xylophone-quartz-77"], allow=[allowance])
    assert again.findings == ()
    assert again.summary["files"] == 5
