"""Versioned records: versions, foreign files, links and pipes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import attrs
import msgspec
import pytest

from clawblox.system.record_file import (
    UPDATE_HINT,
    LaterVersionError,
    RecordError,
    RecordFormat,
    publish_record,
)


@attrs.frozen
class Note:
    text: str
    schema_version: int = 2


FORMAT: Final = RecordFormat(
    kind="a note", decoder=msgspec.json.Decoder(Note), version=2, max_bytes=100, hint="remove it"
)


def test_a_published_record_is_read_back(tmp_path: Path) -> None:
    publish_record(tmp_path / "note.json", Note("hello"))
    assert FORMAT.read(tmp_path / "note.json") == Note("hello")
    text = (tmp_path / "note.json").read_text()
    assert json.loads(text) == {"text": "hello", "schema_version": 2}
    assert (text.count("\n"), text[-2:]) == (4, "}\n")


def test_a_missing_file_or_directory_has_no_record(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert FORMAT.read(tmp_path / "note.json") is None
    assert FORMAT.read(tmp_path / "absent" / "note.json") is None
    assert FORMAT.read(tmp_path / "file" / "note.json") is None


@pytest.mark.parametrize("version", ["", ', "schema_version": 1', ', "schema_version": 2'])
def test_a_record_of_a_known_version_is_decoded(version: str) -> None:
    assert FORMAT.decode(f'{{"text": "a"{version}}}'.encode()).text == "a"


def test_a_later_version_is_reported_before_other_faults() -> None:
    with pytest.raises(LaterVersionError) as raised:
        FORMAT.decode(b'{"schema_version": 3, "text": ["another shape"]}')
    assert str(raised.value) == "it has schema_version 3, and this clawblox reads up to 2"
    assert raised.value.hint == UPDATE_HINT


@pytest.mark.parametrize("content", [b"", b"[]", b'{"text": 1}', b'{"text": "\xff"}', b"[" * 50])
def test_foreign_content_is_an_error_with_advice(content: bytes) -> None:
    with pytest.raises(RecordError, match="it is not a note: ") as raised:
        FORMAT.decode(content)
    assert raised.value.hint == "remove it"


def test_links_pipes_and_large_files_are_refused(tmp_path: Path) -> None:
    publish_record(tmp_path / "note.json", Note("hello"))
    (tmp_path / "link").symlink_to("note.json")
    os.mkfifo(tmp_path / "pipe")
    publish_record(tmp_path / "large", Note("a" * 100))
    problems = {"link": "is a symbolic link", "pipe": "is not a regular file"}
    problems["large"] = "is larger than 100 bytes"
    for name, problem in problems.items():
        with pytest.raises(RecordError) as raised:
            FORMAT.read(tmp_path / name)
        assert raised.value.problem == f"cannot be read: {problem}"
