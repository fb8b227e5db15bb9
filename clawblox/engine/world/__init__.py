"""One world in one process: what happens in a tick, who is in it, what is seen and saved.

- ``engine_world``: the world, as its server calls it.
- ``assembly``: how its parts are put together.
- ``tick``: the phases of a tick.
- ``players``: joining, leaving, kicks, idle players and bots.
- ``observation``: what an agent sees.
- ``spectator``: what a spectator sees.
- ``document``: saving and restoring.
- ``console``: what a world prints, and how it says why it has halted.
"""
