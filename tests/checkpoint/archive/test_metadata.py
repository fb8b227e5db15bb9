"""``metadata.json`` is unambiguous or refused."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.checkpoint.archive.layout import ArchiveEntry
from clawblox.checkpoint.archive.metadata import (
    RESERVED_KEYS,
    check_tree,
    compare_members,
    parse_metadata,
    recorded_repositories,
    serialise_metadata,
)
from clawblox.errors import (
    CheckpointFormatError,
    CheckpointLimitError,
    CheckpointPathError,
    CheckpointVersionError,
    ConfigError,
)
from tests.checkpoint.archives import WORKSPACE_FILE, described

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
DIGEST = "0123456789abcdef" * 4


def metadata(**keys):
    return json.dumps({"schema_version": 1, **keys}).encode()


def entry(name, *, size=0, mode=0o600):
    return ArchiveEntry(name, 0, 0, size, size, mode, 0)


@pytest.mark.thorough
@given(st.dictionaries(TEXT.filter(lambda key: key not in RESERVED_KEYS), JSON, max_size=5))
def test_the_metadata_of_a_caller_is_returned(caller):
    document = {"schema_version": 1, **caller}
    data = serialise_metadata(document)
    assert parse_metadata(data) == document
    assert serialise_metadata(document) == data
    assert parse_metadata(data + b"   ") == document


@pytest.mark.parametrize(
    "caller",
    [
        {"x": math.nan},
        {"x": math.inf},
        {"x": {1, 2}},
        {"x": object()},
        {"x": b"bytes"},
        {"x": "\ud800"},
        {"\ud800": 1},
        {1: "one", "1": "another"},
        {"x": 10**2000},
        {(1, 2): "x"},
    ],
)
def test_a_value_that_json_cannot_represent_is_a_configuration_error(caller):
    with pytest.raises(ConfigError, match="cannot be written as JSON"):
        serialise_metadata(caller)


def test_a_document_that_readers_would_refuse_is_a_configuration_error():
    deep: list = []
    for _ in range(101):
        deep = [deep]
    endless: list = []
    endless.append(endless)
    for value in (deep, endless):
        with pytest.raises(ConfigError):
            serialise_metadata({"x": value})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"[]", "not an object"),
        (b"1", "not an object"),
        (b'"x"', "not an object"),
        (b"null", "not an object"),
        (b"\xef\xbb\xbf" + metadata(), "BOM"),
        (metadata().decode().encode("utf-16"), "not UTF-8"),
        (b'{"schema_version": 1, "x": "\xff"}', "not UTF-8"),
        (b'{"schema_version": 1, "x": "\xed\xa0\x80"}', "not UTF-8"),
        (b'{"schema_version": 1, "x": "\\ud800"}', "not UTF-8"),
        (b'{"schema_version": 1, "\\udc80": 1}', "not UTF-8"),
        (b'{"schema_version": 1, "schema_version": 1}', "same key twice"),
        (b'{"schema_version": 1, "x": {"a": 1, "a": 1}}', "same key twice"),
        (b'{"schema_version": 1, "a": 1, "\\u0061": 1}', "same key twice"),
        (b'{"schema_version": 1, "x": NaN}', "NaN"),
        (b'{"schema_version": 1, "x": -Infinity}', "-Infinity"),
        (b'{"schema_version": 1, "x": 1e999}', "too large"),
        (b'{"schema_version": 1, "x": ' + b"7" * 5000 + b"}", "digits"),
        (b'{"schema_version": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "JSON"),
        (b'{"schema_version": 1, "x": ' + b"[" * 100 + b"]" * 100 + b"}", "deeper"),
        (b'{"schema_version": 1, "x": ' + b'{"a":' * 99 + b"[]" + b"}" * 100, "deeper"),
        (metadata() + b"{}", "not JSON"),
        (metadata()[:-1], "not JSON"),
        (b"{}", "no schema_version"),
        (b'{"schema_version": 0}', "no schema_version"),
        (b'{"schema_version": true}', "no schema_version"),
        (b'{"schema_version": 1.0}', "no schema_version"),
        (b'{"schema_version": "1"}', "no schema_version"),
    ],
)
def test_an_ambiguous_document_is_refused(data, reason):
    with pytest.raises(CheckpointFormatError, match=reason) as refused:
        parse_metadata(data)
    assert refused.value.entry == "metadata.json"


def test_a_document_may_be_as_deep_as_the_limit():
    parse_metadata(b'{"schema_version": 1, "x": ' + b"[" * 99 + b"]" * 99 + b"}")


def test_a_newer_schema_version_is_reported_before_any_other_defect():
    with pytest.raises(CheckpointVersionError) as refused:
        parse_metadata(b'{"schema_version": 999, "files": "in another shape"}')
    assert refused.value.message == (
        "the archive has schema_version 999, but this clawblox reads only up to 2"
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"created_at": 1},
        {"session_format": 1},
        {"agents": "a"},
        {"agents": {"a": None}},
        {"agents": {"a/b": {}}},
        {"agents": {"..": {}}},
        {"agents": {"": {}}},
        {"agents": {"a": {"session_id": 1}}},
        {"agents": {"a": {"mid_turn": "yes"}}},
        {"agents": [{}]},
        {"agents": [".."]},
        {"files": None},
        {"files": []},
        {"files": {"world.snapshot": None}},
        {"files": {"world.snapshot": {}}},
        {"files": {"world.snapshot": described(b"", size=-1)}},
        {"files": {"world.snapshot": described(b"", size=True)}},
        {"files": {"world.snapshot": described(b"", size=1.0)}},
        {"files": {"world.snapshot": described(b"", sha256=DIGEST[:-1])}},
        {"files": {"world.snapshot": described(b"", sha256=DIGEST.upper())}},
        {"files": {"world.snapshot": described(b"", mode=0o777)}},
        {"files": {"world.snapshot": described(b"", mode="0600")}},
        {"files": {"world.snapshot": described(b"", mtime_ns=1.5)}},
        {"files": {"world.snapshot": described(b"", unstable="yes")}},
        {"symlinks": {}},
        {"symlinks": [{"path": "agents/a/workspace/x"}]},
        {"symlinks": [["agents/a/workspace/x", "y"]]},
        {"directories": "agents/a/workspace/x"},
        {"directories": [1]},
        {"excluded": [{"path": "x"}]},
        {"secret_scan": []},
        {"world": []},
        {"lineage": "x"},
    ],
)
def test_a_reserved_key_in_another_shape_is_refused(keys):
    with pytest.raises(CheckpointFormatError, match=next(iter(keys))):
        parse_metadata(metadata(**keys))


def test_every_reserved_key_has_a_shape():
    shapes = {
        "schema_version": 2,
        "created_at": "2026-06-22T18:59:25Z",
        "session_format": None,
        "agents": {"a": {"backend": "claude", "session_id": None, "mid_turn": False, "new": 1}},
        "files": {"world.snapshot": described(b"", unstable=True, new=[])},
        "symlinks": [{"path": WORKSPACE_FILE, "target": "x"}],
        "directories": ["agents/a/workspace/d"],
        "repositories": [{"path": "agents/a/workspace/.git", "promisors": [PROMISOR], "new": 1}],
        "excluded": [{"path": "agents/a/workspace/\n", "reason": "x"}],
        "secret_scan": {},
        "world": None,
        "lineage": {"run_id": None},
    }
    assert shapes.keys() == RESERVED_KEYS
    assert parse_metadata(json.dumps(shapes).encode()) == shapes


PROMISOR = {"name": "origin", "url": "https://example.org/x.git", "filter": "blob:none", "new": 1}


@pytest.mark.parametrize("filter_", [None, "tree:0", "blob:limit=1k", "combine:tree:3+blob:none"])
@pytest.mark.parametrize("name", ["origin", "a.b/c-d"])
@pytest.mark.parametrize(
    "url", [None, "https://a/", "https://a-b.c:8443/x/y.git", "https://1.2.3.4/~a/@b,c+d/e%20f"]
)
def test_valid_settings_of_a_repository_are_accepted(filter_, name, url):
    promisor = {"name": name, "url": url, "filter": filter_}
    entry = {"path": "agents/a/workspace/.git", "promisors": [promisor], "partial_clone": name}
    document = parse_metadata(metadata(schema_version=2, repositories=[entry]))
    assert recorded_repositories(document)[0].promisors[0].url == url


@pytest.mark.parametrize(
    "keys",
    [
        {"path": None},
        {"in_sandbox": 1},
        {"bare": None},
        {"partial_clone": "a b"},
        *({"sparse_checkout": value} for value in ("true", 1)),
        *({"promisors": value} for value in (None, {}, [None], [{}], "x")),
        *(
            {"promisors": [{**PROMISOR, "name": name}]}
            for name in ("", "-o", "a]", 'a"b', "a b", "a\nb", "a\n", "a//b", "../a", "ä", "a/")
        ),
        *(
            {"promisors": [{**PROMISOR, "url": url}]}
            for url in (
                "",
                "https://",
                "https://a",
                "https:///x",
                "HTTPS://a/x",
                "http://a/x",
                "ssh://a/x",
                "file:///x",
                "ext::sh -c x",
                "/x",
                "https://u@a/x",
                "https://u:p@a/x",
                "https://a@b:c/x",
                "https://a/x?y",
                "https://a/x#y",
                "https://a/x;y",
                "https://a/x y",
                "https://a/x\n",
                "https://a/x\ny",
                'https://a/"x',
                "https://a/x\\",
                "https://a/%0a",
                "https://a/%00",
                "https://-a/x",
                "https://a-/x",
                "https://a..b/x",
                "https://a./x",
                "https://[::1]/x",
                "https://a:/x",
                "https://a:123456/x",
                "https://ä/x",
                "https://a_b/x",
                "https://a\\b/x",
                "https://a/" + "x" * 3000,
            )
        ),
        *(
            {"promisors": [{**PROMISOR, "filter": spec}]}
            for spec in (
                "",
                "x",
                "sparse:path=x",
                "sparse:oid=x",
                "blob:none\n",
                "combine:",
                "auto",
            )
        ),
        *(
            {"submodules": [name]}
            for name in (
                "",
                "/a",
                "a/",
                "-a",
                "..",
                "a/..",
                "../a",
                "a/./b",
                'a"',
                "a]",
                "a\n",
                "a\\",
            )
        ),
        {"submodules": "a"},
    ],
)
def test_other_settings_of_a_repository_are_refused(keys):
    entry = {"path": "agents/a/workspace/.git", **keys}
    with pytest.raises(CheckpointFormatError, match="repositories"):
        parse_metadata(metadata(schema_version=2, repositories=[entry]))
    own = parse_metadata(metadata(repositories=[entry]))  # schema 1 does not reserve the key
    assert recorded_repositories(own) == []


def test_a_repository_has_a_name_like_any_other_entry():
    workspace = "agents/a/workspace"
    paths = ("agents/a/x/.git", f"{workspace}/../.git", f"{workspace}/\0/.git")
    for keys in ({key: path} for key in ("path", "git_file") for path in paths):
        entry = {"path": "agents/a/workspace/.git", **keys}
        with pytest.raises(CheckpointPathError):
            parse_metadata(metadata(schema_version=2, repositories=[entry]))


@pytest.mark.parametrize("path", ["../x", "/x", "agents/a/workspace/../x", "agents/a/x"])
def test_recorded_paths_must_be_valid_names(path):
    with pytest.raises(CheckpointPathError):
        parse_metadata(metadata(symlinks=[{"path": path, "target": "y"}]))
    with pytest.raises(CheckpointPathError):
        parse_metadata(metadata(directories=[path]))


@pytest.mark.parametrize("value", [b"[],", b"{},", b'"",', b"1,"])
def test_a_document_of_too_many_values_is_refused_before_it_is_built(value):
    data = b'{"schema_version": 1, "x": [' + value * 1000 + b"1]}"
    parse_metadata(data, max_values=3000)
    with pytest.raises(CheckpointLimitError):
        parse_metadata(data, max_values=1000)


def test_members_that_differ_from_the_file_list_are_refused():
    document = {"files": {"world.snapshot": described(b"1234")}}
    known = entry("metadata.json", size=99), entry("world.snapshot", size=4)
    assert compare_members(document, known) is True
    assert compare_members({}, known) is False
    for wrong in (
        known[:1],
        (*known, entry(WORKSPACE_FILE)),
        (known[0], entry("world.snapshot", size=5)),
        (known[0], entry("world.snapshot", size=4, mode=0o700)),
    ):
        with pytest.raises(CheckpointFormatError, match=r"file list|in the archive"):
            compare_members(document, wrong)


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        ([WORKSPACE_FILE, WORKSPACE_FILE + "/x"], {}),
        ([WORKSPACE_FILE], {"symlinks": [{"path": WORKSPACE_FILE, "target": "x"}]}),
        ([WORKSPACE_FILE + "/x"], {"symlinks": [{"path": WORKSPACE_FILE, "target": "x"}]}),
        ([WORKSPACE_FILE], {"directories": [WORKSPACE_FILE]}),
        ([WORKSPACE_FILE], {"directories": [WORKSPACE_FILE + "/x"]}),
        ([WORKSPACE_FILE + "/x"], {"symlinks": [{"path": WORKSPACE_FILE, "target": "y"}]}),
        ([], {"directories": [WORKSPACE_FILE, WORKSPACE_FILE]}),
    ],
)
def test_members_that_do_not_fit_into_one_tree_are_refused(names, keys):
    with pytest.raises(CheckpointFormatError):
        check_tree(keys, [entry(name) for name in names], max_paths=100)


def test_a_recorded_directory_may_contain_links_and_members():
    link = {"path": "agents/a/workspace/d/link", "target": "x"}
    document = {"symlinks": [link], "directories": ["agents/a/workspace/d"]}
    check_tree(document, [entry("agents/a/workspace/d/file")], max_paths=100)


def test_directories_count_towards_the_limit_of_members():
    deep = [entry("agents/a/workspace/" + "/".join(f"{n}" * 20) + "/x") for n in range(5)]
    check_tree({}, deep, max_paths=200)
    with pytest.raises(CheckpointLimitError):
        check_tree({}, deep, max_paths=100)
    with pytest.raises(CheckpointLimitError):
        check_tree({"directories": [f"agents/a/workspace/{n}" for n in range(9)]}, [], max_paths=8)
