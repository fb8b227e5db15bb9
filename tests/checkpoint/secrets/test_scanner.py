from __future__ import annotations

import io
import json
import pickle
import traceback
import zipfile
from pathlib import Path

import attrs
import pytest

from clawblox.checkpoint.model import Allowance
from clawblox.checkpoint.recent import RecentValues
from clawblox.checkpoint.secrets import (
    RULESET,
    Scanner,
    content,
    known_values,
    read_allowances,
)
from clawblox.errors import CheckpointError, CheckpointSecretError, ConfigError
from clawblox.results import Finding
from tests.checkpoint.secrets.fakes import Maker, fake, pieces, rules_in, scan
from tests.checkpoint.secrets.wrapping import zipped

TOKEN = fake("github-token")


def allow(finding: Finding, reason: str = "a revoked one") -> Allowance:
    return Allowance(
        path=finding.path, rule=finding.rule, fingerprint=finding.fingerprint, reason=reason
    )


def test_an_allowed_finding_passes_and_is_recorded() -> None:
    (finding,) = scan(TOKEN, "a.txt")
    entry = allow(finding)
    scanner = Scanner(allow=[entry, attrs.evolve(entry, path="never/seen.txt")])
    assert scanner.scan("a.txt", [TOKEN.encode()]) == []
    assert scanner.summary() == {
        "ruleset": RULESET,
        "files": 1,
        "bytes": 40,
        "decoded_containers": 0,
        "allowed": [attrs.asdict(entry)],
        "unscanned": [],
    }


@pytest.mark.parametrize("field", ["path", "rule", "fingerprint"])
def test_an_allowance_is_for_one_place_one_rule_and_one_secret(field: str) -> None:
    (finding,) = scan(TOKEN, "a.txt")
    scanner = Scanner(allow=[attrs.evolve(allow(finding), **{field: "another"})])
    assert scanner.scan("a.txt", [TOKEN.encode()]) == [finding]
    assert scanner.summary()["allowed"] == []


def test_an_allowed_unscannable_file_is_listed_as_unscanned() -> None:
    data = b"7z\xbc\xaf\x27\x1c" + bytes(100)
    (finding,) = scan(data, "x.7z")
    scanner = Scanner(allow=[allow(finding)])
    assert scanner.scan("x.7z", [data]) == []
    assert scanner.scan("x.7z", [data + b"changed"]) != []
    assert scanner.summary()["unscanned"] == ["x.7z"]


def test_allowances_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret-allow.json"
    entry = {"path": "a", "rule": "jwt", "fingerprint": "0" * 16, "reason": "a sample"}
    file.write_text(json.dumps([entry]))
    assert read_allowances(file) == (Allowance(**entry),)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "must be JSON"), ("[" * 100_000, "must be JSON"), ("{}", "must be a JSON list"),
        ("[1]", "must be a JSON object"), ('[{"path": "a"}]', "[0].rule"),
        ('[{"path": "a", "rule": "b", "fingerprint": "c", "reason": " "}]', "[0].reason"),
        ('[{"path": "a", "rule": "b", "fingerprint": "c", "reason": 1}]', "[0].reason"),
        ('[{"path":"a","rule":"b","fingerprint":"c","reason":"d","glob":"*"}]', "[0].glob"),
        ("\ud800", "must be JSON"),
    ],
)  # fmt: skip
def test_a_wrong_file_of_allowances_is_refused(tmp_path: Path, text: str, part: str) -> None:
    file = tmp_path / "secret-allow.json"
    file.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(ConfigError) as caught:
        read_allowances(file)
    assert part in str(caught.value)
    assert str(file) in str(caught.value)


def test_an_absent_file_of_allowances_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_allowances(tmp_path / "absent")


def test_a_path_is_searched_and_shown_without_its_secret() -> None:
    findings = scan(f"x {fake('npm-token')}", f"logs/{TOKEN}/{TOKEN}.txt")
    assert {finding.rule for finding in findings} == {"github-token", "npm-token"}
    findings += scan(zipped(fake("npm-token").encode(), f"logs/{TOKEN}.txt"), "a.zip")
    assert len(findings) >= 4
    for finding in findings:
        assert TOKEN not in str(finding) + repr(finding) + finding.path


@pytest.mark.thorough
def test_each_of_many_secrets_is_reported_once() -> None:
    make = Maker("many")
    tokens = ["gh" + "p_" + make(36) for _ in range(20_000)]
    lines = [finding.line for finding in scan("\n".join(tokens))]
    assert lines == list(range(1, 20_001))


def test_a_finding_in_a_container_is_reported_at_its_place_inside() -> None:
    stored = zipped(f" {TOKEN}\n".encode(), "b!c", method=zipfile.ZIP_STORED)
    assert [finding.path for finding in scan(stored, "a")] == ["a!b!c"]
    beside = stored + fake("npm-token").encode()
    told = {(finding.path, finding.rule) for finding in scan(beside, "a")}
    assert told == {("a!b!c", "github-token"), ("a", "npm-token")}


def test_no_traceback_shows_the_secret() -> None:
    rich_traceback = pytest.importorskip("rich.traceback")
    rich_console = pytest.importorskip("rich.console")
    known = known_values({"A_TOKEN": Maker("known")(40)}, [])
    secrets = (TOKEN, known["env:A_TOKEN"])
    text = f"{TOKEN} {known['env:A_TOKEN']}".encode()

    def shown(error: BaseException) -> str:
        captured = traceback.TracebackException.from_exception(error, capture_locals=True)
        lines = rich_traceback.Traceback.from_exception(
            type(error), error, error.__traceback__, show_locals=True, locals_max_string=None
        )
        console = rich_console.Console(file=io.StringIO(), width=4000)
        console.print(lines)
        return "".join(captured.format()) + console.file.getvalue() + str(error) + repr(error)

    def failing(content):
        yield content
        raise OSError("the disk is gone")

    scanner = Scanner(known)
    cases = (lambda: _save(scanner, known, failing(text)), lambda: _save(scanner, known, [text]))
    for case, kind in zip(cases, (OSError, CheckpointSecretError), strict=True):
        with pytest.raises(kind) as caught:
            case()
        report = shown(caught.value)
        assert "scan" in report
        for secret in secrets:
            _assert_absent(secret, report, own=text)


def _assert_absent(secret: str, report: str, own: bytes) -> None:
    # The frames of this test contain the text; the frames of the package must not.
    frames = report.split("test_scanner.py")
    package = [part for part in frames if "checkpoint/secrets/scanner.py" in part]
    assert all(secret not in part for part in package), own[:0]


def _save(scanner: Scanner, known: object, chunks: object) -> None:
    findings = scanner.scan("agents/a/workspace/notes", chunks)  # type: ignore[arg-type]
    del chunks
    raise CheckpointSecretError("refused", findings=findings)


def test_a_failure_of_the_scan_shows_no_content(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError(f"cannot cope with {TOKEN}")

    monkeypatch.setattr(content, "find_matches", fail)
    with pytest.raises(CheckpointError) as caught:
        Scanner().scan("file", (piece for piece in (TOKEN.encode(), b"!" * 600)))
    error: BaseException | None = caught.value
    while error:
        captured = traceback.TracebackException.from_exception(error, capture_locals=True)
        ours = [frame for frame in captured.stack if "/secrets/" in frame.filename]
        for frame in (frame for frame in ours if "tests" not in frame.filename):
            assert TOKEN not in str(frame.locals)
        assert TOKEN not in str(error)
        error = error.__cause__ or error.__context__
    assert "ValueError" in str(caught.value)


def test_findings_survive_pickling_of_the_error() -> None:
    error = CheckpointSecretError("refused", findings=scan(TOKEN))
    assert pickle.loads(pickle.dumps(error)).findings == error.findings


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list with an element for each searched window."""
    searched: list[int] = []
    original = content.find_matches

    def counting(text, known):
        searched.append(len(text))
        return original(text, known)

    monkeypatch.setattr(content, "find_matches", counting)
    monkeypatch.setattr(content, "verdicts", RecentValues(capacity=1000))
    return searched


def clean_text(seed: object) -> bytes:
    return (Maker(seed)(50, "abc def\n") + "\n").encode() * 20_000


def test_clean_windows_are_searched_once(judged: list[int]) -> None:
    data = clean_text(1)
    scanners = Scanner(), Scanner()
    summaries = []
    for scanner in scanners:
        assert scanner.scan("a", pieces(data)) == []
        assert scanner.scan("b", pieces(zipped(data))) == []
        summaries.append(scanner.summary())
    assert summaries[0] == summaries[1]
    windows = len(judged)
    Scanner().scan("c", pieces(data, 777))
    assert len(judged) == windows
    Scanner().scan("c", pieces(data + b"appended"))
    assert len(judged) == windows + 1


def test_other_known_secrets_invalidate_remembered_windows(judged: list[int]) -> None:
    data = clean_text(2) + b"a-value-that-is-known"
    assert rules_in(data) == []
    windows = len(judged)
    assert rules_in(data, known={"k": "another-value-123"}) == []
    assert len(judged) == 2 * windows
    assert rules_in(data, known={"k": "a-value-that-is-known"}) == ["known-value:k"]


def test_a_window_with_a_finding_is_never_remembered(judged: list[int]) -> None:
    data = TOKEN.encode() + b"\n" + clean_text(3)
    for _ in range(3):
        (finding,) = scan(data)
        assert finding.line == 1


def test_lines_are_counted_through_windows_that_are_remembered(judged: list[int]) -> None:
    data = clean_text(4)
    assert rules_in(data) == []
    (finding,) = scan(data + TOKEN.encode())
    assert finding.line == data.count(b"\n") + 1


def test_the_number_of_remembered_verdicts_is_bounded() -> None:
    remembered = RecentValues[content.WindowVerdict](capacity=2)
    for key in (b"a", b"b", b"c"):
        remembered.remember(key, content.WindowVerdict(0, 0, None))
        remembered.recall(b"a")
    assert [bool(remembered.recall(key)) for key in (b"a", b"b", b"c")] == [True, False, True]
