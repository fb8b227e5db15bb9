"""Takes ``check_page.webp``: the report of a world that loses its random state in a restore.

    python -m docs.pictures.check_page

It needs Chromium. World and report are real ones.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.engine.page.chromium import Chromium
from tests.optional import require_program
from tests.support.provable import make_provable_world

PICTURE: Final = Path(__file__).with_name("check_page.webp")
_CHECKS: Final = ("static", "contract", "restore")
_FAILED: Final = 1


def take(directory: Path) -> bytes:
    """Return the picture; ``directory`` is empty and takes the world and the browser's files."""
    (directory / "worlds").mkdir()
    make_provable_world(directory / "worlds", clock="lockstep", defect="loses-chance")
    words = ("check", "worlds/orchard", *_CHECKS, "--seed", "7", "--html", "report.html")
    ended = subprocess.run([sys.executable, "-m", "clawblox", *words], cwd=directory, check=False)
    assert ended.returncode == _FAILED, "the check did not find the defect"
    browser = Chromium(require_program("chromium"), directory)
    try:
        url = (directory / "report.html").as_uri()
        with browser.open(url, width=1100, height=860) as page:
            page.wait_for("document.querySelector('details') !== null")
            return page.screenshot(format="webp", quality=82)
    finally:
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        PICTURE.write_bytes(take(Path(place)))
