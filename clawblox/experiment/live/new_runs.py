"""Makes run directories; they have another name until they are complete. Everything here blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from clawblox.experiment import layout
from clawblox.system.files import make_private_dir, publish_tree
from clawblox.system.trees import remove_tree


@contextlib.contextmanager
def making_run(chain_dir: Path, attempt: str) -> Iterator[Path]:
    """Make a run directory; it is complete and durable, or absent.

    Args:
        chain_dir: The directory of the chain; it is created if it is missing.
        attempt: The name of the attempt.

    Yields:
        The incomplete directory, with the directories of every run. When the block ends, it gets
        its name; when the block raises an error, it is removed.

    Raises:
        FileExistsError: The attempt has a run directory.
        OSError: It cannot be made.
    """
    discard_partial(chain_dir, attempt)
    run_dir = layout.attempt_dir(chain_dir, attempt)
    partial = run_dir.with_name(layout.partial_name(attempt))
    try:
        for name in layout.RUN_DIRS:
            make_private_dir(partial / name)
        yield partial
        publish_tree(partial, run_dir)
    except BaseException:
        discard_partial(chain_dir, attempt)
        raise


def discard_partial(chain_dir: Path, attempt: str) -> None:
    """Remove what a killed process left of an incomplete run directory.

    Args:
        chain_dir: The directory of the chain.
        attempt: The name of the attempt.

    Raises:
        OSError: It cannot be removed.
    """
    partial = layout.runs_dir(chain_dir) / layout.partial_name(attempt)
    with contextlib.suppress(FileNotFoundError):
        remove_tree(partial)
