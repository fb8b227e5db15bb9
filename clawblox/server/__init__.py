"""The kit to write a conforming world in Python.

A world is a :class:`Simulation`; :func:`serve` gives it everything else: sessions, input,
chat, the snapshot with its gate, exact resume, recordings, the ``WORLD_*`` contract. Nothing
of the orchestrator is imported, so a world's image needs only this package, starlette and
uvicorn (extra ``server``).
"""

from clawblox.server.app import create_app
from clawblox.server.instance import Instance
from clawblox.server.launch import serve
from clawblox.server.settings import Settings
from clawblox.server.simulation import Clock, InputError, Json, Simulation

__all__ = [
    "Clock",
    "InputError",
    "Instance",
    "Json",
    "Settings",
    "Simulation",
    "create_app",
    "serve",
]
