"""Continues what the public generation scripts began, and lets them continue what began here.

- ``script_files``: reads and checks the files that the scripts write.
- ``takeover``: records that in the journal of an experiment.
- ``options``: the plan and the login that follow from the options of the public script.
- ``replacing``: renames an experiment, so that another one can begin in its place.
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
