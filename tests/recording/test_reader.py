"""Recordings are read by track and time, in the order in which everything happened."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.foreign_values import MAX_MEMBERS
from clawblox.recording import blocks
from clawblox.recording.blocks import BLOCK_RECORDS, Moment, Track
from clawblox.recording.reader import RecordingReader
from clawblox.recording.writer import BLOCK_AGE_S, BLOCK_BYTES, BlockCollector, observation_fields
from tests.recording.files import UTC, Recorded, moment, read_all, reading

EVENT, OBSERVATION, FRAME, TICK, FLUSH = range(5)
OLD = Path(__file__).with_name("events-v1.jsonl")


def record(directory: Path, steps: list[int]) -> tuple[Path, list[tuple[Track, int]]]:
    """Record some steps; return the file, and the tracks and numbers of its records in order."""
    recorded = Recorded(directory)
    expected, tick = [(Track.INPUTS, 0)], 0
    for number, step in enumerate(steps, 1):
        if step == TICK:
            tick += 1
        elif step == FLUSH:
            recorded.flush()
        elif step == EVENT:
            recorded.add(Track.INPUTS, tick, event="chat", number=number)
            expected.append((Track.INPUTS, number))
        elif step == OBSERVATION:
            recorded.observe(tick, "a", {"number": number})
            expected.append((Track.OBSERVATIONS, number))
        else:  # right after its tick
            tick += 1
            recorded.frame(tick, number=number)
            expected.append((Track.FRAMES, number))
    return recorded.close(), expected


def number_of(fields: dict) -> int:
    return fields.get("number", fields.get("observation", fields).get("number", 0))


def read_numbers(recording: RecordingReader, since: float = float("-inf")) -> list:
    return [(one.track, number_of(one.fields)) for one in recording.read(since=since)]


STEPS = st.lists(st.integers(EVENT, FLUSH), max_size=150)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 60))
def test_records_are_read_in_chronological_order(steps, tick):
    with tempfile.TemporaryDirectory() as directory:
        path, expected = record(Path(directory), steps)
        with reading(path) as recording:
            assert read_numbers(recording) == expected
            records = list(recording.read())
            since = [one for one in records if one.moment.tick >= tick]
            assert list(recording.read(since=tick / 10)) == since
            for track in Track:
                own = [one for one in records if one.track is track]
                assert [one.number for one in own] == [*range(len(own))]
                assert list(recording.read_track(track)) == own
                until = [one for one in own if one.moment.tick <= tick]
                assert list(recording.read_back(track, tick / 10)) == until[::-1]
            assert recording.start()["clock"] == "lockstep"
            assert recording.torn_at is None


def test_every_program_for_zstandard_prints_all_records(tmp_path):
    path, expected = record(tmp_path, [EVENT, FLUSH, FRAME, OBSERVATION] * 3)
    stream = zstandard.ZstdDecompressor().stream_reader(
        io.BytesIO(path.read_bytes()), read_across_frames=True
    )
    lines = stream.read().splitlines()
    assert sorted(map(number_of, map(json.loads, lines))) == sorted(n for _, n in expected)


def test_an_observation_is_read_as_it_was_sent(tmp_path):
    observation = b'{"agent_id": 1.10,  "observation":{"after":[]}}'
    recorded = Recorded(tmp_path)
    fields = observation_fields(b'"a,\\"observation\\":1"', 1, observation)
    recorded.collector.add(Track.OBSERVATIONS, moment(1), fields, 0.0)
    with reading(recorded.close()) as recording:
        [record] = recording.read_track(Track.OBSERVATIONS)
        [start] = recording.read_track(Track.INPUTS)
    assert record.observation == observation
    assert record.fields["agent_id"] == 'a,"observation":1'
    assert start.observation == b""


def test_a_seek_decompresses_the_blocks_of_its_track_and_time_only(tmp_path, monkeypatch):
    recorded = Recorded(tmp_path)
    for tick in range(1, 500):
        recorded.frame(tick)
        recorded.add(Track.INPUTS, tick, event="chat")
    path = recorded.close()
    with reading(path) as recording:
        decompressed = []
        content = recording._content
        monkeypatch.setattr(
            recording, "_content", lambda entry: decompressed.append(entry) or content(entry)
        )
        assert next(recording.read_track(Track.FRAMES, 40.0)).moment.tick == 400
        assert next(recording.read_back(Track.FRAMES, 20.0)).moment.tick == 200
    assert len(recording.index) > 20
    assert [entry.header.track for entry in decompressed] == [Track.FRAMES] * 2


# ------------------------------------------------------------------------------------------- blocks


def test_a_block_ends_at_its_records_its_size_or_its_age():
    collector = BlockCollector()

    def add(track: Track, size: int, now: float) -> bool:
        return collector.add(track, moment(1), b'{"x":"%b"}' % (b"x" * size), now)

    assert collector.due_at is None
    assert add(Track.FRAMES, 1, 10.0)
    assert [add(Track.FRAMES, 1, 11.0) for _ in range(BLOCK_RECORDS - 1)] == [
        *[False] * (BLOCK_RECORDS - 2),
        True,
    ]
    assert [(block.track, block.records) for block in collector.take(0.0)] == [
        (Track.FRAMES, BLOCK_RECORDS)
    ]
    assert add(Track.OBSERVATIONS, BLOCK_BYTES, 11.0)
    assert [block.records for block in collector.take(0.0)] == [1]
    assert add(Track.INPUTS, 1, 12.0)
    assert add(Track.FRAMES, 1, 12.0)
    assert collector.due_at == 12.0 + BLOCK_AGE_S[Track.INPUTS]
    assert collector.take(12.9) == []
    assert [block.track for block in collector.take(13.0)] == [Track.INPUTS]
    assert collector.due_at == 17.0
    assert [block.track for block in collector.take(float("inf"))] == [Track.FRAMES]
    assert (collector.due_at, collector.waiting_bytes) == (None, 0)


def test_a_record_that_is_too_long_for_readers_is_refused(monkeypatch):
    monkeypatch.setattr("clawblox.recording.writer.MAX_BLOCK_BYTES", 100)
    collector = BlockCollector()
    with pytest.raises(ValueError, match="a record of 162 bytes is longer than 100"):
        collector.add(Track.FRAMES, moment(1), b'{"x":"%b"}' % (b"x" * 100), 0.0)
    for _ in range(2):
        collector.add(Track.FRAMES, moment(1), b'{"x":1}', 0.0)
    assert [block.records for block in collector.take(float("inf"))] == [1, 1]


def test_a_record_with_too_many_values_for_readers_is_refused():
    collector = BlockCollector()
    with pytest.raises(ValueError, match="more than 1048576 values"):
        collector.add(Track.FRAMES, moment(1), b'{"x":[0' + b",0" * MAX_MEMBERS + b"]}", 0.0)
    assert collector.due_at is None


@pytest.mark.parametrize(
    ("name", "limit", "message"),
    [("MAX_START_BYTES", 100, "bytes, more than 100"), ("MAX_START_MEMBERS", 5, "more than 5 val")],
)
def test_a_start_that_is_too_large_for_readers_is_refused(monkeypatch, name, limit, message):
    monkeypatch.setattr(f"clawblox.recording.writer.{name}", limit)
    with pytest.raises(ValueError, match=message):
        BlockCollector().start(moment(1), json.dumps({"snapshot": [0] * 100}).encode())


# ------------------------------------------------------------------------------- the older format


def test_a_recording_of_the_older_format_is_read_as_one_track():
    with reading(OLD) as recording:
        assert recording.is_old
        assert recording.start()["world_format"] == "tally-v1"
        records = list(recording.read())
        assert [one.fields["event"] for one in records] == [
            "start", "join", "input", "input", "chat", "leave"
        ]  # fmt: skip
        assert records[-1].moment == Moment(3, 0.30000000000000004, "")
        assert [one.number for one in recording.read(since=0.3)] == [3, 4, 5]
        assert [one.number for one in recording.read_back(Track.INPUTS, 0.1)] == [2, 1, 0]
        assert list(recording.read_track(Track.FRAMES)) == []


def test_a_long_recording_of_the_older_format_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("clawblox.recording.reader._OLD_BLOCK_BYTES", 150)
    path = tmp_path / "recording-0001.jsonl"
    lines = [json.dumps({"tick": n, "time": n / 10, "event": "x" * n}) for n in range(200)]
    path.write_text("\n".join(lines) + "\n{torn")
    with reading(path) as recording:
        assert len(recording.index) > 50
        assert [one.moment.tick for one in recording.read()] == [*range(200)]
        assert [one.number for one in recording.read(since=15.05)] == [*range(151, 200)]
        assert recording.torn_at == path.stat().st_size - len("{torn")


def test_moments_are_written_in_the_documented_form():
    from datetime import UTC as ZONE
    from datetime import datetime

    at = datetime(2026, 6, 2, 8, 9, 5, 7999, ZONE)
    assert blocks.format_moment_utc(at) == "2026-06-02T08:09:05.007Z"
    assert blocks._UTC.fullmatch(UTC.format(7))
    assert read_all(OLD)[0]["tick"] == 0


def test_without_zstandard_the_error_has_the_command_that_installs_it(tmp_path, monkeypatch):
    path = Recorded(tmp_path).close()
    for name in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    with (
        pytest.raises(ModuleNotFoundError, match=r"use Python 3.14, or pip install .*\[zstd\]"),
        reading(path),
    ):
        pass
    with pytest.raises(ModuleNotFoundError):
        Recorded(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["recording-0001.jsonl.zst"]
    assert len(read_all(OLD)) == 6
