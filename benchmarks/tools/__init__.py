"""Code for running N worlds with other tools, as their users would write it.

A tool is opened (preparations before the first world), starts all worlds, stops them, and is
closed. For tools without readiness checks, the user polls every world over HTTP each 0.2 s.
"""

from __future__ import annotations

from benchmarks.tools.base import Tool
from benchmarks.tools.clusters import Dask, Ray
from benchmarks.tools.daemons import Circus, Honcho, Supervisord
from benchmarks.tools.in_process import Clawblox, Jupyter, Script

__all__ = ["TOOLS"]

TOOLS: dict[str, type[Tool]] = {
    "clawblox": Clawblox,
    "script": Script,
    "circus": Circus,
    "supervisord": Supervisord,
    "honcho": Honcho,
    "ray": Ray,
    "dask": Dask,
    "jupyter_client": Jupyter,
}
