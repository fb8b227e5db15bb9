"""Continues experiments of the public generation scripts, and lets the scripts continue ours.

- ``script_files``: reads and checks the files of the scripts.
- ``takeover``: records their generations in the journal of an experiment.
- ``options``: the plan and the login from the options of the public script.
- ``replacing``: renames an experiment, so that another experiment can take its place.
"""

from __future__ import annotations

from clawblox.experiment.harness.options import BACKENDS, GenerationOptions, find_env, make_room
from clawblox.experiment.harness.takeover import check_takeover, take_over

__all__ = [
    "BACKENDS",
    "GenerationOptions",
    "check_takeover",
    "find_env",
    "make_room",
    "take_over",
]
