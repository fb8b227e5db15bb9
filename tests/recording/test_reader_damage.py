"""A torn recording is read up to its last complete block, and a hostile one harms no reader."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.errors import RecordingError
from clawblox.recording.blocks import (
    MAGIC,
    MAX_BLOCK_BYTES,
    MAX_START_BYTES,
    PREFIX,
    Block,
    Track,
    encode_block,
    require_zstandard,
)
from tests.recording.files import START, Recorded, moment, read_all, reading

LINE = b'{"tick":1,"time":0.1,"utc":"","event":"x"}\n'


def header(**changes: Any) -> bytes:
    """Return a header with its prefix, after which a block of :data:`LINE` follows."""
    frame = require_zstandard().compress(LINE)
    document = {
        "track": "inputs",
        "records": 1,
        "ticks": [1, 1],
        "times": [0.1, 0.1],
        "utc": [moment(1).utc] * 2,
        "compressed": len(frame),
        "uncompressed": len(LINE),
    }
    data = json.dumps({**document, **changes}).encode()
    return PREFIX.pack(MAGIC, len(data)) + data


@pytest.fixture
def start(tmp_path: Path) -> bytes:
    return Recorded(tmp_path).close().read_bytes()


def test_a_torn_last_block_is_ignored_wherever_it_ends(tmp_path):
    recorded = Recorded(tmp_path)
    recorded.add(Track.INPUTS, 1, event="chat")
    recorded.flush()
    size = recorded.path.stat().st_size
    recorded.add(Track.INPUTS, 2, event="chat")
    whole = recorded.close().read_bytes()
    torn = tmp_path / "torn.jsonl.zst"
    for end in range(size, len(whole)):
        torn.write_bytes(whole[:end])
        with reading(torn) as recording:
            assert [record.moment.tick for record in recording.read()] == [0, 1]
            assert recording.torn_at == (size if end > size else None)
    assert len(read_all(recorded.path)) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"track": "secrets"}, "track: must be one of inputs, observations, frames"),
        ({"track": ["inputs"]}, "track: must be one of"),
        ({"records": 0}, "records: must be a whole number from 1 to 50"),
        ({"records": 51}, "records: must be a whole number from 1 to 50"),
        ({"records": True}, "records: must be"),
        ({"ticks": [1]}, "ticks: must be a list of two values"),
        ({"ticks": [-1, 1]}, "ticks: has a value of the wrong type"),
        ({"times": [0.1, float("nan")]}, "times: has a value of the wrong type"),
        ({"times": [0.1, 10**400]}, "times: has a value of the wrong type"),
        ({"utc": ["now", "now"]}, "utc: has a value of the wrong type"),
        ({"compressed": 0}, "compressed: must be a whole number from 1"),
        ({"compressed": 2**40}, "compressed: must be a whole number from 1"),
        ({"uncompressed": MAX_BLOCK_BYTES + 1}, "uncompressed: must be a whole number from 1 to"),
        ({"uncompressed": len(LINE) + 1}, "the frame declares"),
        ({"records": 2}, "a block has 1 records, and its header declares 2"),
        ({"track": "x" * 2000}, "a header has 2"),
    ],
)
def test_a_hostile_header_is_an_error_with_its_offset(tmp_path, start, changes, message):
    path = tmp_path / "hostile.jsonl.zst"
    path.write_bytes(start + header(**changes) + require_zstandard().compress(LINE))
    with pytest.raises(RecordingError) as caught:
        read_all(path)
    assert message in caught.value.message
    assert str(caught.value).startswith(f"{path}: ")
    assert caught.value.offset is not None
    assert caught.value.offset >= len(start)


def test_a_block_may_not_have_more_than_its_header_declares(tmp_path, start):
    """A bomb: 64 MiB of zeros are 6 kB of Zstandard."""
    frame = require_zstandard().compress(bytes(64 << 20))
    path = tmp_path / "bomb.jsonl.zst"
    path.write_bytes(start + header(compressed=len(frame)) + frame)
    with pytest.raises(RecordingError, match="the frame declares 67108864 bytes, not 43"):
        read_all(path)
    path.write_bytes(start + header(compressed=len(frame), uncompressed=64 << 20) + frame)
    with pytest.raises(RecordingError, match="uncompressed: must be a whole number from 1 to"):
        read_all(path)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"\x28\xb5\x2f\xfd" + bytes(30), "cannot be decompressed"),
        (b"not a frame of Zstandard", "cannot be decompressed"),
        (require_zstandard().compress(LINE)[:-1] + b"?", "cannot be decompressed"),
        (require_zstandard().compress(LINE) * 2, "cannot be decompressed"),
    ],
    ids=["an empty frame", "no frame", "a wrong checksum", "two frames"],
)
def test_a_frame_that_is_not_what_the_header_declares_is_an_error(tmp_path, start, frame, message):
    path = tmp_path / "hostile.jsonl.zst"
    path.write_bytes(start + header(compressed=len(frame)) + frame)
    with pytest.raises(RecordingError, match=message):
        read_all(path)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"tick":1,"time":0.1,"x":' + b"[" * 100_000,
        b'{"tick":1,"time":0.1,"x":[' + b"0," * (1 << 20) + b"0]}",
        b'{"tick":1,"time":NaN,"utc":""}',
        b'{"tick":1.5,"time":1,"utc":""}',
        b'{"tick":1,"time":1,"utc":"\x1b[2J"}',
        b'{"time":1,"utc":""}',
        b"\xff\xfe",
        b"",
        b"3",
    ],
)
def test_malformed_record_is_an_error(tmp_path, start, line):
    content = line + b"\n"
    block = Block(Track.INPUTS, 1, moment(1), moment(1), content)
    path = tmp_path / "hostile.jsonl.zst"
    path.write_bytes(start + encode_block(block, require_zstandard()))
    with pytest.raises(RecordingError, match="record 1 of the track inputs: "):
        read_all(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it has no complete record"),
        (b"\x5b", "it has no complete record"),
        (b"hello world, hello", "it is not a recording, or damaged"),
        (b"{", "it has no complete record"),
        (b"{}\n", "a record: tick: is missing"),
        (b'{"tick":0,"time":0}\n', "it does not begin with the event 'start'"),
        (b'{"tick":0,"time":0,"event":"start","format":"x"}\n', "its format is not clawblox-event"),
    ],
)
def test_file_other_than_a_recording_is_an_error(tmp_path, content, message):
    path = tmp_path / "recording"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as caught, reading(path) as recording:
        recording.start()
    assert message in caught.value.message


def test_a_recording_of_a_later_format_is_refused(tmp_path):
    fields = json.dumps({**START, "format": "clawblox-recording-v3"}).encode()
    recorded = Recorded(tmp_path)
    recorded.collector.take(0.0)
    recorded.collector.start(moment(0), fields)
    with reading(recorded.close()) as recording, pytest.raises(RecordingError, match="its format"):
        recording.start()


def test_a_file_of_endless_blocks_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("clawblox.recording.reader.MAX_BLOCKS", 5)
    recorded = Recorded(tmp_path)
    for tick in range(1, 5):
        recorded.add(Track.INPUTS, tick, event="chat")
        recorded.flush()
    assert len(read_all(recorded.path)) == 5
    recorded.add(Track.INPUTS, 5, event="chat")
    with pytest.raises(RecordingError, match="it has more than 5 blocks"):
        read_all(recorded.close())


def test_a_sparse_file_of_terabytes_is_refused_without_reading_it(tmp_path, start):
    path = tmp_path / "sparse.jsonl.zst"
    path.write_bytes(start)
    os.truncate(path, 1 << 42)
    with pytest.raises(RecordingError, match="no header of a block"):
        read_all(path)
    head = header(compressed=MAX_BLOCK_BYTES, uncompressed=MAX_BLOCK_BYTES)
    path.write_bytes(start + head)
    os.truncate(path, 1 << 42)
    with pytest.raises(RecordingError, match="no header of a block"):
        read_all(path)
    assert MAX_BLOCK_BYTES < MAX_START_BYTES


def make_sample(directory: Path) -> bytes:
    recorded = Recorded(directory)
    for tick in range(1, 4):
        recorded.frame(tick, frame={"at": tick})
        recorded.observe(tick, "a", [tick])
        recorded.add(Track.INPUTS, tick, event="chat", content="x" * 20)
        recorded.flush()
    return recorded.close().read_bytes()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_changed_bytes_are_an_error_or_harmless(data):
    with tempfile.TemporaryDirectory() as directory:
        sample = bytearray(make_sample(Path(directory)))
        for _ in range(data.draw(st.integers(1, 3))):
            sample[data.draw(st.integers(0, len(sample) - 1))] = data.draw(st.integers(0, 255))
        path = Path(directory, "changed.jsonl.zst")
        path.write_bytes(sample)
        with contextlib.suppress(RecordingError):
            read_all(path)
