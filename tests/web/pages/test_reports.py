"""The pages of the reports of check and verify, with marks for changed worlds."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox import __version__
from clawblox.conformance.kept_check import keep_check
from clawblox.errors import ClawbloxError
from clawblox.web.site import NoSuchPage, Site, identify
from clawblox.world.sources import read_world_files
from tests.conformance.reports import HOSTILE, failing_report
from tests.web.drawing import draw, make


@pytest.fixture
def world(tmp_path: Path) -> Path:
    (tmp_path / "world.toml").write_text('[world]\nname = "panda"\n[run]\ncommand = "true"\n')
    (tmp_path / "world.py").write_text("pass\n")
    keep_check(tmp_path, failing_report(), read_world_files(tmp_path), __version__)
    return tmp_path


def test_the_report_of_a_check_is_listed_and_shown(world: Path) -> None:
    site = Site(world)
    assert failing_report().verdict.sentence in draw(site, "reports")
    text = draw(site, f"check/{identify('.')}")
    assert 'class="check"' in text
    assert "have not changed since" in text


def test_the_report_of_a_changed_world_is_marked(world: Path) -> None:
    (world / "world.py").write_text("print()\n")
    assert "Out of date: world.py changed since" in draw(Site(world), f"check/{identify('.')}")


def test_unreadable_report_has_the_reason_and_hides_no_other(world: Path) -> None:
    (world / ".clawblox" / "check.json").write_text(f'{{"schema_version": "{HOSTILE}"}}')
    text = draw(Site(world), "reports")
    assert "<script" not in text
    assert "check.json" in text
    with pytest.raises(ClawbloxError, match=r"check\.json"):
        make(Site(world), f"check/{identify('.')}")


def test_a_report_outside_of_the_directory_is_not_shown(world: Path, tmp_path: Path) -> None:
    inside = world / "runs"
    inside.mkdir()
    site = Site(inside)
    assert site.judged() == []
    for ident in (identify(".."), identify("."), "0123456789"):
        with pytest.raises(NoSuchPage):
            make(site, f"check/{ident}")
