"""Temporary directories leave nothing behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import anyio
import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.system.scratch import scratch_directory, temporary_directory
from clawblox.system.trees import MAX_DEPTH
from tests.support.deep import make_deep


def test_a_temporary_directory_is_removed_with_its_content(tmp_path: Path) -> None:
    with temporary_directory("some-", parent=tmp_path) as directory:
        assert directory.name.startswith("some-")
        assert directory.stat().st_mode & 0o777 == 0o700
        make_deep(directory, "d", 2 * MAX_DEPTH)
        (directory / "d").chmod(0)
    assert os.listdir(tmp_path) == []


@pytest.mark.anyio
async def test_a_scratch_directory_is_removed_after_a_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with anyio.CancelScope() as scope:
        async with scratch_directory("some-") as directory:
            assert await run_blocking(os.listdir, tmp_path) == [directory.name]
            scope.cancel()
            await anyio.sleep_forever()
    assert await run_blocking(os.listdir, tmp_path) == []
