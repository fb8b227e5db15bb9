"""The kit to write a conforming world in Python.

You write a :class:`Simulation` and pass it to :func:`serve`, which adds sessions, input, chat,
snapshots, exact resume, recordings and the ``WORLD_*`` contract. The kit does not import the
orchestrator, so a world's image needs only this package and the extra ``server``.

- ``simulation``: the class that an author writes.
- ``serving``: the entry of a world's program, and the socket that it may have inherited.
- ``launch_settings``: flags and ``WORLD_*`` variables.
- ``hosted_world``: a simulation with its sessions, waiting inputs and chat.
- ``clocks``: the times and the rate of ticks.
- ``sessions``, ``chat``: the agents in the world, and their messages.
- ``snapshot_document``: the snapshot of a hosted world, written and restored.
- ``recording``: records events, observations and ticks in a file that the run's manifest lists.
- ``replaying``: a world repeats the inputs of a recording, and records the result.
- ``app``: the routes.
- ``feed``, ``static_files``: routes that a simulation may add.
- ``payload``: strict JSON.
- ``connections``, ``websockets``: uvicorn, and the limits of its connections.
- ``stop_signals``: SIGTERM and SIGINT for a server that is not on the main thread.
"""

from clawblox.extras import require_extra

require_extra("server", __name__)

from clawblox.protocol import ScriptErrors
from clawblox.server.app import create_app
from clawblox.server.feed import Feed
from clawblox.server.hosted_world import HostedWorld, WorldFull
from clawblox.server.launch_settings import Settings, read_settings
from clawblox.server.serving import serve, serve_with
from clawblox.server.simulation import (
    Clock,
    Halted,
    InputError,
    Json,
    Simulation,
    WorldState,
)
from clawblox.server.static_files import StaticDirectory
from clawblox.server.stop_signals import StopSignals

__all__ = [
    "Clock",
    "Feed",
    "Halted",
    "HostedWorld",
    "InputError",
    "Json",
    "ScriptErrors",
    "Settings",
    "Simulation",
    "StaticDirectory",
    "StopSignals",
    "WorldFull",
    "WorldState",
    "create_app",
    "read_settings",
    "serve",
    "serve_with",
]
