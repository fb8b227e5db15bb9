"""Malicious or damaged archives are refused before the first write, or harmless."""

from __future__ import annotations

import dataclasses
import os
import stat
import struct
import zipfile
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawblox.checkpoint import load_checkpoint
from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.model import Limits
from clawblox.errors import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointLimitError,
    CheckpointPathError,
    CheckpointVersionError,
)
from clawblox.printable import printable_name
from tests.checkpoint.archives import (
    DIRECTORY,
    REGULAR,
    WORKSPACE_FILE,
    Member,
    archive,
    bare_checkpoint,
    checkpoint,
    deflate,
    describe,
    described,
    metadata_member,
    renamed_checkpoint,
    tree_of,
    zip64_extra,
)

LIMITS = Limits(entries=50, file_bytes=1 << 20, total_bytes=3 << 20)
FULL = 0xFFFF_FFFF
PLAIN = {"schema_version": 1}
GOOD = {"world.snapshot": b"state", WORKSPACE_FILE: b"my notes\n" * 20}


@pytest.fixture
def refuse(tmp_path):
    """Return a check that a load is refused and has changed no file."""
    around = tmp_path / "around"
    run_dir = around / "run"
    run_dir.mkdir(parents=True)
    (run_dir / "runtime").mkdir()
    (around / "evil").write_bytes(b"untouched")

    def check(
        data: bytes, error: type[CheckpointError], reason: str | None = None
    ) -> CheckpointError:
        path = tmp_path / "hostile.ckpt"
        path.write_bytes(data)
        for target in (run_dir, around / "new" / "run"):
            before = tree_of(around)
            with pytest.raises(error, match=reason) as refused:
                load_checkpoint(path, target, limits=LIMITS)
            assert tree_of(around) == before
        assert refused.value.path is not None
        assert str(refused.value).isprintable() or "\x1b" not in str(refused.value)
        return refused.value

    return check


def good_members(**first):
    """Return a snapshot and a workspace file; ``first`` are fields of the snapshot."""
    snapshot, notes = GOOD.items()
    return Member(*snapshot, **first), Member(*notes)


def with_field(**fields):
    return bare_checkpoint(*good_members(fields=fields))


def archive_body(*members):
    """Return the bytes of an archive's members without its directory."""
    data = archive(*members)
    return data[: data.index(b"PK\x01\x02")]


# Names


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/etc/passwd", "not canonical"),
        ("../evil", "not canonical"),
        ("agents/a/workspace/../../../../evil", "not canonical"),
        ("agents/a/workspace/x/..", "not canonical"),
        ("agents/a/workspace/./x", "not canonical"),
        ("agents/a//workspace/x", "not canonical"),
        ("agents/a/workspace/directory/", "not canonical"),
        ("", "not canonical"),
        ("~/evil", "not in a directory of a checkpoint"),
        ("evil", "not in a directory of a checkpoint"),
        ("agents/a/evil", "not in a directory of a checkpoint"),
        ("agents/a/home/.bashrc", "not in a directory of a checkpoint"),
        ("C:/evil", "U\\+003A"),
        ("agents\\a\\workspace\\x", "U\\+005C"),
        ("agents/a/workspace/x\0.txt", "U\\+0000"),
        ("agents/a/workspace/x\x1b[2J", "U\\+001B"),
        ("agents/a/workspace/x\u202e", "U\\+202E"),
        ("agents/a/workspace/x.", "dot or a space"),
        ("agents/a/workspace/" + "x" * 256, "255"),
        ("agents/a/workspace/" + "x/" * 2000 + "x", "deeper"),
        ("agents/a/workspace/" + ("x" * 200 + "/") * 21 + "x", "4096"),
        (b"agents/a/workspace/\xff", "not UTF-8"),
        (b"agents/a/workspace/\xc0\xaf", "not UTF-8"),
        (b"agents/a/workspace/\xed\xa0\x80", "not UTF-8"),
    ],
)
def test_a_harmful_name_is_refused(refuse, name, reason):
    for fields in {}, {"flags": 0x800}:
        if isinstance(name, bytes) and not fields:
            continue
        refuse(bare_checkpoint(Member(name, b"x", fields=fields)), CheckpointPathError, reason)


@pytest.mark.parametrize("name", ["agents/a/workspace/é".encode(), b"agents/a/workspace/\x82"])
def test_a_name_without_its_encoding_flag_is_refused(refuse, name):
    hostile = Member(name, b"x", fields={"flags": 0})
    refuse(bare_checkpoint(hostile), CheckpointPathError, "UTF-8 flag is missing")


# Paths of members with neutral names

WORKSPACE = "agents/a/workspace/"
RENAMED = "agents/a/workspace/.renamed/0"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (WORKSPACE + "../../../odd:", "not canonical"),
        (WORKSPACE + "odd:/../../x", "not canonical"),
        (WORKSPACE + "odd:/", "not canonical"),
        (WORKSPACE + "./odd:", "not canonical"),
        ("/etc/odd:", "U\\+003A"),
        ("../odd.", "not canonical"),
        ("", "not canonical"),
        (WORKSPACE + "odd:\0", "U\\+0000"),
        (WORKSPACE + "odd:" + "x" * 252, "255"),
        (WORKSPACE + "odd:/" + "x/" * 2000 + "x", "deeper"),
        (WORKSPACE + ("odd:" * 50 + "/") * 21 + "x", "4096"),
        (WORKSPACE + "plain", "itself a valid name"),
        (WORKSPACE, "not canonical"),
        ("agents/b/workspace/odd:", "outside of its agent's workspace"),
        ("agents/a/session/odd:", "U\\+003A"),
        ("agents/a/session/plain", "outside of its agent's workspace"),
        ("agents/a:/workspace/x", "U\\+003A"),
        ("metadata.json", "outside of its agent's workspace"),
        ("world.snapshot", "outside of its agent's workspace"),
        ("agents/a", "not in a directory of a checkpoint"),
    ],
)
def test_a_path_that_is_invalid_for_a_neutral_name_is_refused(refuse, path, reason):
    refuse(renamed_checkpoint({RENAMED: path}), CheckpointPathError, reason)


@pytest.mark.parametrize("path", [WORKSPACE + "odd:\udcff", 1, None, []])
def test_a_path_that_is_not_text_is_refused(refuse, path):
    data = renamed_checkpoint({RENAMED: path})
    refuse(data, CheckpointFormatError, "not UTF-8|shape for files")


@pytest.mark.parametrize("name", [WORKSPACE_FILE, "world.snapshot", "agents/a/session/x"])
@pytest.mark.parametrize("path", [WORKSPACE_FILE, WORKSPACE + "odd:"])
def test_a_path_of_a_member_without_a_neutral_name_is_refused(refuse, name, path):
    refuse(renamed_checkpoint({name: path}), CheckpointPathError, "no other name may have one")


@pytest.mark.parametrize("name", [RENAMED, WORKSPACE + ".renamed", WORKSPACE + ".renamed/x"])
def test_a_neutral_name_without_a_path_is_refused(refuse, name):
    member = Member(name, b"x")
    plain = archive(metadata_member({"schema_version": 2}), member)
    for data in (renamed_checkpoint({}, member), plain):
        refuse(data, CheckpointPathError, "needs a path")


@pytest.mark.parametrize("name", ["x", "01", "1/2", "1000000000"])
def test_a_path_for_a_reserved_name_that_is_not_neutral_is_refused(refuse, name):
    data = renamed_checkpoint({f"{WORKSPACE}.renamed/{name}": WORKSPACE + "odd:"})
    refuse(data, CheckpointPathError, "outside of its agent's workspace")


def test_neutral_names_are_ordinary_names_before_schema_2(tmp_path):
    data = renamed_checkpoint({RENAMED: WORKSPACE + "odd:"}, version=1)
    (tmp_path / "a.ckpt").write_bytes(data)
    loaded = load_checkpoint(tmp_path / "a.ckpt", tmp_path / "run")
    workspace = loaded["agents"]["a"] / "workspace"
    assert [str(path.relative_to(workspace)) for path in sorted(workspace.rglob("*"))] == [
        ".renamed",
        ".renamed/0",
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {"symlinks": [{"path": WORKSPACE + "odd:", "target": "x"}]},
        {"directories": [WORKSPACE + "odd:"]},
    ],
)
def test_an_odd_path_of_a_link_or_a_directory_is_refused_before_schema_2(refuse, keys):
    refuse(renamed_checkpoint({}, version=1, **keys), CheckpointPathError, "U\\+003A")


@pytest.mark.parametrize(
    ("paths", "keys"),
    [
        ([WORKSPACE + "odd:"] * 2, {}),
        ([WORKSPACE + "odd:", WORKSPACE + "odd:/x"], {}),
        ([WORKSPACE + "notes.txt/odd:"], {}),
        ([WORKSPACE + "odd:"], {"symlinks": [{"path": WORKSPACE + "odd:", "target": "x"}]}),
        ([WORKSPACE + "odd:/x"], {"symlinks": [{"path": WORKSPACE + "odd:", "target": "."}]}),
        ([WORKSPACE + "odd:"], {"directories": [WORKSPACE + "odd:"]}),
        ([WORKSPACE + "odd:"], {"directories": [WORKSPACE + "odd:/d"]}),
        ([], {"directories": [WORKSPACE + "odd:"] * 2}),
    ],
)
def test_odd_paths_that_do_not_fit_into_one_tree_are_refused(refuse, paths, keys):
    named = {f"agents/a/workspace/.renamed/{number}": path for number, path in enumerate(paths)}
    data = renamed_checkpoint(named, Member(WORKSPACE_FILE, b"x"), **keys)
    refuse(data, CheckpointFormatError, "path twice|not a directory")


@pytest.mark.parametrize(
    "path",
    [
        ".env\u200d",
        ".ENV.",
        ".env ",
        "odd:/.env",
        ".env.\nlocal",
        ".claude/settings.json ",
        ".cl\u00adaude/settings.json",
        "odd:/.claude./settings.json",
        ".git /config",
        ".g\u200cit/hooks/post-checkout",
        ".git/config.",
        "odd:/.git/config",
        "odd:/.git/refs/heads/x.lock",
        ".ssh\u2066/id_rsa",
    ],
)
def test_an_excluded_name_is_excluded_in_every_spelling(tmp_path, path):
    data = renamed_checkpoint(
        {RENAMED: WORKSPACE + path},
        symlinks=[{"path": f"agents/b/workspace/{path}", "target": "x"}],
        directories=[f"agents/c/workspace/{path}/d:"],
        agents={"b": {}, "c": {}},
    )
    (tmp_path / "a.ckpt").write_bytes(data)
    loaded = load_checkpoint(tmp_path / "a.ckpt", tmp_path / "run")
    for name in "abc":
        assert [*(tmp_path / "run" / "agents" / name / "workspace").rglob("*")] == []
    left_out = (WORKSPACE + path, f"agents/c/workspace/{path}/d:", f"agents/b/workspace/{path}")
    assert [entry["path"] for entry in loaded["excluded"]] == [*map(printable_name, left_out)]


# Entries of directories


def with_directory(name="agents/a/workspace/d/", *members, **fields):
    document = metadata_member(PLAIN)
    directory = Member(name, method=0, fields={"external": DIRECTORY, **fields})
    return archive(document, directory, *members)


@pytest.mark.parametrize("external", [DIRECTORY, 0o042775 << 16, 0o040000 << 16, 0x10, 0])
def test_an_entry_of_a_directory_creates_the_directory(tmp_path, external):
    (tmp_path / "a.ckpt").write_bytes(with_directory(external=external))
    loaded = load_checkpoint(tmp_path / "a.ckpt", tmp_path / "run")
    made = loaded["agents"]["a"] / "workspace" / "d"
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "name",
    [
        "../evil/",
        "/evil/",
        "evil/",
        "agents/../evil/",
        "agents/a/home/",
        "agents/a/workspace/../../x/",
        "agents/a/workspace//",
        "agents/a/workspace/x\n/",
        "agents/a/workspace/x:/",
        "agents/a/workspace/x./",
        "agents/a/renamed/",
        "world.snapshot/",
        "agents/a/workspace/" + "d/" * 253,
    ],
)
def test_an_entry_of_a_directory_elsewhere_is_refused(refuse, name):
    refuse(with_directory(name), CheckpointPathError)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"external": REGULAR}, "an entry for a directory is not a directory"),
        ({"external": stat.S_IFLNK << 16}, "an entry for a directory is not a directory"),
        ({"external": stat.S_IFIFO << 16 | 0x10}, "an entry for a directory is not a directory"),
        ({"external": DIRECTORY | 0x20}, "an entry for a directory is not a directory"),
        ({"method": 8}, "has content"),  # without even the end of a block
        ({"crc": 1}, "has content"),
        ({"packed_size": 1}, "two different sizes"),
        ({"flags": 8}, "flags 0x0008"),
    ],
)
def test_a_malformed_entry_of_a_directory_is_refused(refuse, fields, reason):
    refuse(with_directory(**fields), CheckpointFormatError, reason)


@pytest.mark.parametrize("method", [0, 8])
def test_content_of_a_directory_is_refused(refuse, method):
    hidden = Member("agents/a/workspace/d/", b"x", method=method, fields={"external": DIRECTORY})
    refuse(bare_checkpoint(hidden), CheckpointPathError, "not canonical")
    fields = {"external": DIRECTORY}
    longer = Member("agents/a/workspace/d/", b"", packed=b"\x02\x00\x03\x00", fields=fields)
    refuse(bare_checkpoint(longer), CheckpointFormatError, "has content")
    damaged = Member("agents/a/workspace/d/", b"", packed=b"\x07\x00", fields=fields)
    refuse(bare_checkpoint(damaged), CheckpointFormatError, "damaged")


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (Member("agents/a/workspace/d/", method=0, fields={"external": DIRECTORY}), "same name"),
        (Member("agents/a/workspace/d", b"x"), "a file and a directory"),
    ],
)
def test_a_repeated_entry_of_a_directory_is_refused(refuse, other, reason):
    refuse(with_directory("agents/a/workspace/d/", other), CheckpointFormatError, reason)


def test_a_directory_below_a_file_or_in_place_of_a_link_is_refused(refuse):
    below = with_directory(WORKSPACE_FILE + "/d/", Member(WORKSPACE_FILE, b"x"))
    refuse(below, CheckpointFormatError, "parent of an entry is not a directory")
    directory = Member("agents/a/workspace/d/", method=0, fields={"external": DIRECTORY})
    link = {"path": "agents/a/workspace/d", "target": "."}
    refuse(bare_checkpoint(directory, symlinks=[link]), CheckpointFormatError, "and a directory")


def test_a_directory_in_the_file_list_is_refused(refuse):
    document = describe({"agents/a/workspace/d/": b""})
    directory = Member("agents/a/workspace/d/", method=0, fields={"external": DIRECTORY})
    refuse(archive(metadata_member(document), directory), CheckpointFormatError, "in the archive")


def test_too_many_entries_of_directories_are_refused(refuse):
    directories = [
        Member(f"agents/a/workspace/{n}/", method=0, fields={"external": DIRECTORY})
        for n in range(50)
    ]
    refuse(bare_checkpoint(*directories), CheckpointLimitError, "51 entries")
    deep = Member("agents/a/workspace/" + "d/" * 60, method=0, fields={"external": DIRECTORY})
    refuse(bare_checkpoint(deep), CheckpointLimitError, "directories")


def test_an_excluded_directory_is_not_created(tmp_path):
    (tmp_path / "a.ckpt").write_bytes(with_directory("agents/a/workspace/.git/hooks/"))
    loaded = load_checkpoint(tmp_path / "a.ckpt", tmp_path / "run")
    assert [*(loaded["agents"]["a"] / "workspace").iterdir()] == []
    [excluded] = loaded["excluded"]
    assert excluded["path"] == "agents/a/workspace/.git/hooks"


# Additions of other programs

TIMES = b"UT\x05\0\x03abcd"
TWO_TIMES = b"UT\x09\0\x03abcdefgh"
OWNER = b"ux\x0b\0\x01\x04\0\0\0\0\x04\0\0\0\0"


def described_member(**fields):
    """Return a member with a data descriptor in the format of bsdtar, and the bytes after it."""
    content, packed = b"state", deflate(b"state")
    crc = zlib.crc32(content)
    known = {"crc": crc, "packed_size": len(packed), "size": len(content), **fields}
    descriptor = struct.pack("<4s3I", b"PK\x07\x08", *known.values())
    return Member(
        "world.snapshot",
        content,
        packed=packed + descriptor,
        fields={"flags": 8},
        local={"crc": 0, "packed_size": 0},
        central={"packed_size": len(packed)},
    )


@pytest.mark.parametrize(
    "members",
    [
        good_members(local={"extra": TWO_TIMES + OWNER}, central={"extra": TIMES + OWNER}),
        good_members(fields={"extra": OWNER + TIMES}),
        good_members(fields={"made": 3 << 8 | 30, "needed": 10, "internal": 1}),
        (described_member(), good_members()[1]),
    ],
)
def test_known_additions_of_other_programs_have_no_effect(tmp_path, members):
    path = tmp_path / "a.ckpt"
    path.write_bytes(bare_checkpoint(*members))
    loaded = load_checkpoint(path, tmp_path / "run")
    assert loaded["world_snapshot"].read_bytes() == b"state"
    assert (loaded["agents"]["a"] / "workspace" / "notes.txt").read_bytes() == GOOD[WORKSPACE_FILE]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"extra": TIMES + TIMES}, "extra field"),
        ({"extra": b"UT\x06\0\x03abcde"}, "extra field"),
        ({"extra": b"UT\x05\0\x03abc"}, "extra field"),
        ({"extra": OWNER[:-1]}, "extra field"),
        ({"extra": OWNER + b"x"}, "extra field"),
        ({"extra": TIMES + b"up\x05\0\x01abcd"}, "extra field"),
        ({"extra": TIMES + zip64_extra(5)}, "extra field"),
        ({"made": 3 << 8 | 30, "internal": 2}, "internal"),
        ({"internal": 1}, "internal"),
    ],
)
def test_other_additions_are_refused(refuse, fields, reason):
    refuse(bare_checkpoint(*good_members(fields=fields)), CheckpointFormatError, reason)


@pytest.mark.parametrize(
    ("local", "central"),
    [
        (b"", TIMES),
        (TIMES, b""),
        (TWO_TIMES, b"UT\x05\0\x03abce"),
        (TIMES + OWNER, TIMES),
        (OWNER, OWNER[:-1] + b"\x01"),
    ],
)
def test_times_and_owners_that_disagree_are_refused(refuse, local, central):
    members = good_members(local={"extra": local}, central={"extra": central})
    refuse(bare_checkpoint(*members), CheckpointFormatError, "disagrees")


@pytest.mark.parametrize("fields", [{"crc": 1}, {"packed_size": 1}, {"size": 4}])
def test_a_data_descriptor_that_disagrees_is_refused(refuse, fields):
    data = bare_checkpoint(described_member(**fields), good_members()[1])
    refuse(data, CheckpointFormatError, "data descriptor")


def test_a_data_descriptor_after_stored_content_is_refused(refuse):
    member = described_member()
    packed = b"state" + member.packed[-16:]
    for fields in ({"method": 0}, {"central": {"packed_size": len(member.packed)}}, {"gap": b"x"}):
        changed = {"packed": packed, **fields} if "method" in fields else fields
        data = bare_checkpoint(dataclasses.replace(member, **changed), good_members()[1])
        refuse(data, CheckpointFormatError, "flags 0x0008|data descriptor|contiguous")
    short = dataclasses.replace(member, packed=member.packed[:-1])
    refuse(bare_checkpoint(short), CheckpointFormatError, "data descriptor|last entry")


# Kinds and modes


@pytest.mark.parametrize(
    "kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK, stat.S_IFDIR]
)
def test_entries_that_are_not_regular_files_are_refused(refuse, kind):
    data = with_field(external=(kind | 0o700) << 16)
    refuse(data, CheckpointFormatError, "not a regular file")


@pytest.mark.parametrize("external", [0, 0x10, REGULAR | 0x10, REGULAR | 1])
def test_attributes_of_other_systems_are_refused(refuse, external):
    refuse(with_field(external=external), CheckpointFormatError, "not a regular file")


@pytest.mark.parametrize("bit", [stat.S_ISUID, stat.S_ISGID, stat.S_ISVTX])
def test_special_permissions_are_refused(refuse, bit):
    refuse(with_field(external=REGULAR | bit << 16), CheckpointFormatError, "set-uid")


# Headers


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"flags": 0x1}, "flags 0x0001"),
        ({"flags": 0x8}, "flags 0x0008"),
        ({"flags": 0x20}, "flags 0x0020"),
        ({"flags": 0x40}, "flags 0x0040"),
        ({"flags": 0x2000}, "flags 0x2000"),
        ({"method": 1}, "compression method 1\n"),
        ({"method": 9}, "compression method 9\n"),
        ({"method": 12}, "compression method 12\n"),
        ({"method": 14}, "compression method 14\n"),
        ({"method": 93}, "compression method 93\n"),
        ({"method": 99}, "compression method 99\n"),
        ({"extra": b"up\x05\x00\x01abcd"}, "extra field"),
        ({"extra": b"\x0d\x00\x00\x00"}, "extra field"),
        ({"extra": b"\xfe\xca\x00\x00"}, "extra field"),
        ({"extra": b"\x01"}, "extra field"),
        ({"extra": zip64_extra()}, "extra field"),
        ({"extra": zip64_extra(5, 5)}, "extra field"),
        ({"made": 19 << 8 | 20}, "system 19"),
        ({"made": 3 << 8 | 63}, "version 63"),
        ({"needed": 63}, "version 63"),
        ({"packed_size": 4}, "disagree|contiguous|missing|different sizes"),
        ({"size": FULL}, "extra field"),
    ],
)
def test_a_header_outside_the_profile_is_refused(refuse, fields, reason):
    refuse(with_field(**fields), CheckpointFormatError, reason)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"comment": b"PK"}, "comment"),
        ({"disk": 1}, "another disk"),
        ({"internal": 1}, "internal"),
        ({"signature": b"PK\x01\x03"}, "whole records"),
        ({"size": FULL, "extra": zip64_extra(5) * 2}, "extra field"),
        ({"size": FULL, "extra": zip64_extra(5)[:-1]}, "extra field"),
        ({"size": FULL, "extra": zip64_extra(5, 5)}, "extra field"),
        ({"offset": FULL, "extra": zip64_extra(1 << 63)}, "contiguous"),
    ],
)
def test_a_record_outside_the_profile_is_refused(refuse, fields, reason):
    members = good_members(central=fields)
    refuse(bare_checkpoint(*members), CheckpointFormatError, reason)


@pytest.mark.parametrize(
    "fields",
    [
        {"signature": b"PK\x03\x05"},
        {"name": b"world.snapshoT"},
        {"name": b"world.snap"},
        {"size": 4},
        {"packed_size": 6},
        {"crc": 1},
        {"method": 0},
        {"flags": 0x800},
        {"time": 1},
        {"date": 34},
        {"needed": 46},
        {"extra": b"up\x05\x00\x01abcd"},
        {"extra": zip64_extra(5, 7)},
        {"size": FULL, "packed_size": FULL, "extra": zip64_extra(5, 8)},
        {"size": FULL, "packed_size": FULL, "extra": zip64_extra(5, 7) + b"hidden"},
        {"size": FULL, "extra": zip64_extra(5)},
        {"size": FULL, "packed_size": FULL},
    ],
)
def test_a_local_header_that_disagrees_is_refused(refuse, fields):
    members = good_members(local=fields)
    refuse(bare_checkpoint(*members), CheckpointFormatError, "local header|extra field|version")


def test_wide_fields_that_agree_are_read(tmp_path):
    # The format of zipfile for a member of unknown size.
    wide = {"size": FULL, "packed_size": FULL, "extra": zip64_extra(5, len(deflate(b"state")))}
    path = tmp_path / "a.ckpt"
    path.write_bytes(bare_checkpoint(*good_members(fields=wide)))
    with Archive.open(path) as opened:
        opened.verify()


# Structure


def test_a_repeated_name_is_refused(refuse):
    twice = *good_members(), Member(WORKSPACE_FILE, b"another")
    refuse(bare_checkpoint(*twice), CheckpointFormatError, "same name")


def test_a_second_metadata_member_is_refused(refuse):
    second = metadata_member({"schema_version": 1, "second": True})
    refuse(bare_checkpoint(*good_members(), second), CheckpointFormatError, "same name")


@pytest.mark.parametrize("path", [WORKSPACE_FILE + "/x", "agents/a/workspace/notes.txt/x/y"])
def test_a_file_that_is_used_as_a_directory_is_refused(refuse, path):
    members = (*good_members(), Member(path, b"x"))
    refuse(
        bare_checkpoint(*members), CheckpointFormatError, "parent of an entry is not a directory"
    )
    refuse(
        bare_checkpoint(*members[::-1]),
        CheckpointFormatError,
        "parent of an entry is not a directory",
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (archive(metadata_member(PLAIN), prefix=b"#!/bin/sh\n"), "directory and"),
        (archive(Member("metadata.json", b"{}", gap=b"\0")), "contiguous"),
        (bare_checkpoint(*good_members(gap=b"hidden")), "contiguous"),
        (bare_checkpoint(*good_members(is_listed=False)), "contiguous"),
        (bare_checkpoint(*good_members(is_there=False)), "no local header|disagrees"),
        (bare_checkpoint(*good_members()[::-1], Member("x", is_there=False)), "not in a directory"),
        (bare_checkpoint(*good_members(central={"offset": 0})), "contiguous"),
        (bare_checkpoint(*good_members(fields={"packed_size": 3})), "contiguous"),
        (archive(metadata_member(PLAIN), before_directory=b"x"), "last entry"),
        (archive(metadata_member(PLAIN), before_end=b"x"), "directory and"),
        (archive(Member("world.snapshot")), "first entry"),
        (archive(Member("world.snapshot"), metadata_member(PLAIN)), "first entry"),
        (archive(), "first entry"),
        (b"", "an end record"),
        (b"<!DOCTYPE html><html><body>404 Not Found</body></html>", "an end record"),
        (b"\x1f\x8b\x08" + b"x" * 500, "an end record"),
    ],
)
def test_an_archive_with_hidden_or_missing_bytes_is_refused(refuse, data, reason):
    refuse(data, CheckpointFormatError, reason)


@pytest.mark.parametrize("after", [b"\0", b"\n", b"PK", bytes(22), b"x" * 100_000])
def test_bytes_after_the_end_are_refused(refuse, after):
    refuse(checkpoint(GOOD) + after, CheckpointFormatError, "an end record")


def test_a_comment_is_refused_even_when_it_is_an_archive(refuse):
    inner = checkpoint(GOOD)
    for comment in b"x", inner:
        data = archive(
            metadata_member(PLAIN),
            end={"comment_length": len(comment)},
            after=comment,
        )
        refuse(data, CheckpointFormatError)


def test_two_archives_in_one_file_are_refused(refuse):
    refuse(checkpoint(GOOD) * 2, CheckpointFormatError)


@pytest.mark.parametrize("offset", [0, 5, len(archive_body(metadata_member(PLAIN)))])
def test_members_that_share_their_content_are_refused(refuse, offset):
    content = b"x" * 1000
    second = Member("agents/a/workspace/b", content, is_there=False, central={"offset": offset})
    data = bare_checkpoint(Member("agents/a/workspace/a", content), second)
    refuse(data, CheckpointFormatError, "contiguous")


def test_members_that_quote_each_other_are_refused(refuse):
    # A stored member that contains the header of the next member, which inflates the content of
    # both.
    quoted = archive_body(Member("agents/a/workspace/b", bytes(10_000)))
    outer = Member("agents/a/workspace/a", quoted, method=0)
    start = len(archive_body(metadata_member(PLAIN))) + 30 + len(outer.name)
    second = Member(
        "agents/a/workspace/b", bytes(10_000), is_there=False, central={"offset": start}
    )
    refuse(bare_checkpoint(outer, second), CheckpointFormatError, "contiguous")


@pytest.mark.parametrize(
    "end",
    [
        {"count": 1},
        {"count_here": 1},
        {"count": 1, "count_here": 1},
        {"count": 9, "count_here": 9},
        {"count": 0, "count_here": 0},
        {"size": 1},
        {"size": 0},
        {"size": FULL},
        {"offset": 0},
        {"offset": FULL},
        {"disk": 1},
        {"directory_disk": 1},
        {"disk": 0xFFFF, "directory_disk": 0xFFFF},
        {"comment_length": 5},
    ],
)
def test_a_false_end_record_is_refused(refuse, end):
    members = metadata_member(PLAIN), *good_members()
    refuse(archive(*members, end=end), CheckpointFormatError)
    if FULL not in end.values():  # the field then refers to the zip64 field
        refuse(archive(*members, end=end, zip64={}), CheckpointFormatError)


def test_bytes_in_the_directory_outside_records_are_refused(refuse):
    members = metadata_member(PLAIN), *good_members()
    size = len(archive(*members)) - 22 - len(archive_body(*members))
    data = archive(*members, before_end=b"hidden", end={"size": size + 6})
    refuse(data, CheckpointFormatError, "last record of the directory")


@pytest.mark.parametrize(
    "zip64",
    [
        {"length": 45},
        {"length": 0},
        {"made": 3 << 8 | 99},
        {"needed": 99},
        {"disk": 1},
        {"directory_disk": 1},
        {"count": 1},
        {"count": 2, "count_here": 2},
        {"size": 1 << 62},
        {"offset": 1 << 63},
        {"locator_disk": 1},
        {"disks": 2},
        {"disks": 0},
        {"end64_offset": 0},
        {"end64_offset": (1 << 64) - 1},
    ],
)
def test_a_false_zip64_end_record_is_refused(refuse, zip64):
    members = metadata_member(PLAIN), *good_members()
    full = {"count": 0xFFFF, "count_here": 0xFFFF, "size": FULL, "offset": FULL}
    refuse(archive(*members, end=full, zip64=zip64), CheckpointFormatError)


def test_a_correct_zip64_end_record_is_read(tmp_path):
    path = tmp_path / "a.ckpt"
    members = metadata_member(PLAIN), *good_members()
    full = {"count": 0xFFFF, "count_here": 0xFFFF, "size": FULL, "offset": FULL}
    for end in ({}, full):
        path.write_bytes(archive(*members, end=end, zip64={}))
        with Archive.open(path):
            pass


# Content


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (b"", "recorded size|times as large"),
        (b"\xff\xff\xff", "damaged"),
        (deflate(b"other"), "checksum"),
        (deflate(b"stat"), "checksum|recorded size"),
        (deflate(b"state and more"), "recorded size"),
        (deflate(b"state")[:-1], "recorded size"),
        (deflate(b"state") + b"\0", "after the content"),
        (deflate(b"state") * 2, "after the content"),
        (deflate(b"state") + b"x" * 600_000, "after the content"),
    ],
)
def test_content_that_differs_from_its_header_is_refused(refuse, packed, reason):
    refuse(bare_checkpoint(*good_members(packed=packed)), CheckpointFormatError, reason)


def test_stored_content_that_differs_from_its_header_is_refused(refuse):
    member = Member("world.snapshot", b"state", method=0, packed=b"stale")
    refuse(bare_checkpoint(member), CheckpointFormatError, "checksum")
    member = Member("world.snapshot", b"state", method=0, fields={"size": 4})
    refuse(bare_checkpoint(member), CheckpointFormatError, "different sizes")


def test_excluded_members_are_also_checked(refuse):
    left_out = Member("agents/a/workspace/.mcp.json", b"{}", packed=deflate(b"[]"))
    refuse(bare_checkpoint(left_out), CheckpointFormatError, "checksum")


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (Member(WORKSPACE_FILE, bytes(2 << 20)), "larger than"),
        (Member(WORKSPACE_FILE, b"xx", method=8, fields={"size": 1 << 30}), "larger than"),
        (Member(WORKSPACE_FILE, b"xx", fields={"size": 1 << 19}), "times as large"),
    ],
)
def test_a_bomb_is_refused_before_it_is_inflated(refuse, member, reason):
    refuse(bare_checkpoint(member), CheckpointLimitError, reason)


def test_a_bomb_with_a_false_size_is_refused_while_it_is_inflated(refuse):
    bomb = Member(WORKSPACE_FILE, packed=deflate(bytes(1 << 20)), fields={"size": 2000})
    refuse(bare_checkpoint(bomb), CheckpointFormatError, "recorded size")


def test_many_members_that_are_too_large_together_are_refused(refuse):
    members = [Member(f"agents/a/workspace/{n}", bytes(1 << 20)) for n in range(4)]
    refuse(bare_checkpoint(*members), CheckpointLimitError, "together")


def test_too_many_members_are_refused(refuse):
    members = [Member(f"agents/a/workspace/{n}") for n in range(50)]
    refuse(bare_checkpoint(*members), CheckpointLimitError, "51 entries")


def test_too_many_directories_are_refused(refuse):
    members = [Member(f"agents/a/workspace/{n}/" + "d/" * 50 + "x") for n in range(2)]
    refuse(bare_checkpoint(*members), CheckpointLimitError, "directories")


def test_an_archive_in_an_archive_is_restored_as_a_file(tmp_path):
    path = tmp_path / "a.ckpt"
    inner = bare_checkpoint(Member("../../evil", b"x"))
    path.write_bytes(bare_checkpoint(Member("agents/a/workspace/inner.zip", inner)))
    loaded = load_checkpoint(path, tmp_path / "run", limits=LIMITS)
    assert (loaded["agents"]["a"] / "workspace" / "inner.zip").read_bytes() == inner


# Metadata


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (b"\xff\xfe{}", CheckpointFormatError),
        (b"\xef\xbb\xbf{}", CheckpointFormatError),
        (b"[]", CheckpointFormatError),
        (b"", CheckpointFormatError),
        (b'{"schema_version": 1, "a": 1, "a": 2}', CheckpointFormatError),
        (b'{"schema_version": 1, "a": NaN}', CheckpointFormatError),
        (b"[" * 100_000, CheckpointFormatError),
        (b'{"schema_version": 1, "a": ' + b"1" * 5000 + b"}", CheckpointFormatError),
        (b'{"schema_version": 1, "a": "\\udfff"}', CheckpointFormatError),
        (b"{}", CheckpointFormatError),
        (b'{"schema_version": 999}', CheckpointVersionError),
    ],
)
def test_ambiguous_metadata_is_refused(refuse, document, error):
    refuse(archive(metadata_member(document), *good_members()), error)


@pytest.mark.parametrize(
    "change",
    [
        {"world.snapshot": described(b"stale")},
        {"world.snapshot": described(b"state", size=4)},
        {"world.snapshot": described(b"state", mode=0o700)},
        {"agents/a/workspace/missing": described(b"")},
        {"metadata.json": described(b"")},
    ],
)
def test_a_file_list_that_disagrees_with_the_members_is_refused(refuse, change):
    document = describe(GOOD)
    document["files"] |= change
    refuse(
        archive(metadata_member(document), *good_members()),
        CheckpointFormatError,
        "the file list of metadata.json|in the archive",
    )


def test_a_member_missing_in_the_file_list_is_refused(refuse):
    data = archive(metadata_member(describe(GOOD)), *good_members(), Member("agents/a/workspace/x"))
    refuse(data, CheckpointFormatError, "missing in the file list")


# Damage


def outcome_of(path, run_dir):
    """Load an archive; return the loaded tree, or None if it was refused."""
    try:
        loaded = load_checkpoint(path, run_dir, limits=LIMITS)
    except CheckpointError:
        assert not run_dir.exists()
        return None
    files = {
        name.relative_to(run_dir): (name.read_bytes(), name.stat().st_mode)
        for name in sorted(run_dir.rglob("*"))
        if name.is_file()
    }
    removed = run_dir.rename(run_dir.with_name("removed"))
    for name in sorted(removed.rglob("*"), reverse=True):
        name.unlink() if name.is_file() else name.rmdir()
    removed.rmdir()
    return files, loaded["metadata"], loaded["excluded"]


@pytest.fixture
def good(tmp_path):
    """Return a valid archive, its target directory, and the result of a load."""
    path, run_dir = tmp_path / "good.ckpt", tmp_path / "run"
    files = {"world.snapshot": b"state", WORKSPACE_FILE: b"no"}
    path.write_bytes(checkpoint(files))
    expected = outcome_of(path, run_dir)
    assert expected is not None
    return path, run_dir, expected


def test_every_truncation_is_refused(good):
    path, run_dir, _ = good
    for length in range(path.stat().st_size - 1, -1, -1):
        os.truncate(path, length)
        assert outcome_of(path, run_dir) is None


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.thorough)])
def test_every_flipped_bit_is_refused_or_without_effect(good, step):
    path, run_dir, expected = good
    data = path.read_bytes()
    survivors = 0
    with path.open("r+b") as file:
        for position in range(0, len(data), step):
            for bit in range(8):
                os.pwrite(file.fileno(), bytes([data[position] ^ 1 << bit]), position)
                outcome = outcome_of(path, run_dir)
                assert outcome in (None, expected), (position, bit)
                survivors += outcome is not None
            os.pwrite(file.fileno(), data[position : position + 1], position)
    assert survivors < len(data)


SHORT = st.integers(0, 0xFFFF) | st.sampled_from([0, 1, 8, 20, 45, 0x800, 0xFFFF])
LONG = st.integers(0, FULL) | st.sampled_from([0, 1, 5, 7, FULL - 1, FULL])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "made": SHORT,
        "needed": SHORT,
        "flags": SHORT,
        "method": SHORT,
        "time": SHORT,
        "date": SHORT,
        "crc": LONG,
        "packed_size": LONG,
        "size": LONG,
        "name": st.binary(max_size=40),
        "extra": st.binary(max_size=30)
        | st.sampled_from([zip64_extra(5, 7), zip64_extra(5), TIMES, TWO_TIMES, OWNER]),
        "comment": st.binary(max_size=3),
        "disk": SHORT,
        "internal": SHORT,
        "external": LONG | st.sampled_from([REGULAR, 0o100755 << 16]),
        "offset": LONG,
    },
)
ENDS = st.fixed_dictionaries(
    {},
    optional={
        "disk": SHORT,
        "directory_disk": SHORT,
        "count_here": SHORT,
        "count": SHORT,
        "size": LONG,
        "offset": LONG,
    },
)


@pytest.mark.thorough
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fields=FIELDS,
    local=FIELDS,
    central=FIELDS,
    end=ENDS,
    zip64=st.none() | ENDS,
    packed=st.none() | st.binary(max_size=20),
    gap=st.sampled_from([b"", b"x"]),
)
def test_arbitrary_headers_load_the_same_content_or_are_refused(
    tmp_path, fields, local, central, end, zip64, packed, gap
):
    path, run_dir = tmp_path / "any.ckpt", tmp_path / "run"
    member = Member(
        "world.snapshot",
        b"state",
        packed=packed,
        fields=fields,
        local=local,
        central=central,
        gap=gap,
    )
    document = metadata_member(describe({"world.snapshot": b"state"}))
    path.write_bytes(archive(document, member, end=end, zip64=zip64))
    outcome = outcome_of(path, run_dir)
    if outcome is not None:
        assert [content for content, _ in outcome[0].values()] == [b"state"]
        with zipfile.ZipFile(path) as other:
            assert other.read("world.snapshot") == b"state"
    assert sorted(os.listdir(tmp_path)) == ["any.ckpt"]
