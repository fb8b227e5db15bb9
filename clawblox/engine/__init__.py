"""The engine: worlds made of Luau scripts, with physics and state that can be saved.

It uses only ``luau`` and ``server``, and is started as a program, like any other world:
``python -m clawblox.engine DIR``. `docs/engine.md` explains it.

- ``instances``: the data model, objects in a tree.
- ``values``: the value types of scripts, such as CFrame and Enum.
- ``physics``: bodies that move and collide; the only user of rapier3d.
- ``parts``: parts and their bodies, touches, welds, movers, queries.
- ``characters``: models that walk.
- ``animations``: the tracks that play on them.
- ``tweens``: properties that change over time.
- ``gui``: what players see on the screen, and their clicks.
- ``signals``: events of instances.
- ``scripts``: the scripts of a world, and when they run.
- ``scheduler``: threads that wait, what happens when a script fails, the length of a tick.
- ``thread_records``: the threads that wait, and the errors that have ended threads.
- ``shapes``: the format of a snapshot, and its check.
- ``saved_state``: how a part of a world is saved and restored.
- ``slots``: Luau values that the engine keeps, in a snapshot.
- ``services``: what ``game:GetService`` returns.
- ``datastore``: rows that outlive a world.
- ``world``: all of it put together: ticks, observations, snapshots.
- ``json_text``: Luau values as JSON text.
- ``errors``: exceptions, text at the edges, and the name that a script may have meant.
- ``page``: the host page and renderers for people, static files.
- ``settings``: the ``world.toml`` of a world.
- ``script_watch``: restarts the program when a script changes.
- ``watchdog``: the last defence against scripts that exhaust the machine.
- ``runner``: the program.
"""
