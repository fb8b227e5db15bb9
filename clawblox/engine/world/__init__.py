"""One world in one process: what happens in a tick, who is in it, what is seen and saved.

- ``engine_world``: the world, as its server calls it.
- ``assembly``: how its parts are put together, and the phases of a tick.
- ``observation``: what an agent sees.
- ``spectator``: what a spectator sees, and the routes for people.
- ``world_state``: saving and restoring.
- ``console``: the output of a world, and the reason of its halt.
"""
