"""Where the archives of attempts are found."""

from __future__ import annotations

from pathlib import Path

from clawblox.experiment.history.state import CheckpointRef
from clawblox.experiment.live.preparing import find_archive


def test_an_archive_is_found_although_another_run_has_the_name_of_its_attempt(
    tmp_path: Path,
) -> None:
    ref = CheckpointRef(chain="r1", generation=1, attempt="exp-g001", file="t1.ckpt", sha256="")
    for name in ("exp-g001", "exp-g001.failed-1", "exp-g001.failed-2"):
        (tmp_path / "runs" / name / "checkpoints").mkdir(parents=True)
    assert find_archive(tmp_path, ref) is None
    archive = tmp_path / "runs" / "exp-g001.failed-1" / "checkpoints" / "t1.ckpt"
    archive.touch()
    assert find_archive(tmp_path, ref) == archive
