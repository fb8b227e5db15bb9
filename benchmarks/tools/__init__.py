"""How the user of another tool would run N worlds, tool by tool.

A tool is opened (what it needs before the first world), starts all worlds, stops them, and is
closed. Where a tool does not know readiness, its user asks every world by HTTP each 0.2 s.
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
