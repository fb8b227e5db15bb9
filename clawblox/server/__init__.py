"""The kit to write a conforming world in Python.

A world is a :class:`Simulation`; :func:`serve` gives it everything else: sessions, input,
chat, the snapshot with its gate, exact resume, recordings, the ``WORLD_*`` contract. Nothing
of the orchestrator is imported, so a world's image needs only this package, starlette and
uvicorn (extra ``server``).

- ``launch``: the entry of a world's program, from settings to close.
- ``settings``: how one instance was launched.
- ``simulation``: the class that a world's author writes.
- ``instance``: one running world, without time and without HTTP.
- ``clocks``: when a tick happens.
- ``sessions``: the agents in the world.
- ``chat``: what agents said.
- ``app``: the routes.
- ``payload``: JSON from agents, checked once.
- ``gate``: refuses what a browser was tricked into sending.
- ``connections``: how many there are, and how long a client may take.
- ``listener``: uvicorn, set up for a world.
- ``activation``: a listening socket that the world was started with.
- ``document``: the snapshot document.
- ``recording``: what happened, as one JSON object a line.
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
