"""The tokens of worlds that run now, which an agent may have seen and an archive must not carry.

They are on no disk, only in the environment of each world's process.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from clawblox.checkpoint.archive.registry import above
from clawblox.checkpoint.secrets import KnownValues
from clawblox.protocol import SECRET_ENV
from clawblox.rundir.records import InstanceRecord, read_running
from clawblox.system.process_tree import read_variables


def live_tokens(paths: Iterable[Path]) -> KnownValues:
    """Return the tokens of the live instances of every run that one of ``paths`` lies in. Blocks.

    Returns:
        The tokens, by a label that names the instance.
    """
    directories = {directory for path in paths for directory in (path, *above(path))}
    found = KnownValues()
    for directory in sorted(directories):
        for record in read_running(directory):
            found.update(_read_tokens(record))
    return found


def _read_tokens(record: InstanceRecord) -> KnownValues:
    variables = read_variables(record.pid)
    return KnownValues(
        {
            f"world:{record.name}:{record.pid}:{name}": value
            for name in SECRET_ENV
            if (value := variables.get(name))
        }
    )
