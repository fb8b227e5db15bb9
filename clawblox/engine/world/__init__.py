"""A world in its own process: ticks, agents, observations and snapshots.

- ``engine_world``: the world, with the interface for the server.
- ``assembly``: the assembly of its parts, and the phases of a tick.
- ``observation``: the observation of an agent.
- ``spectator``: the view of a spectator, and the routes for people.
- ``world_state``: saving and restoring.
- ``console``: the output of a world, and the report of its halt.
"""
