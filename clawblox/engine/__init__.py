"""The engine: worlds made of Luau scripts, with physics and state that can be saved.

It uses only ``luau`` and ``server``. Like any other world, it is started as a program:
``python -m clawblox.engine DIR``. See `docs/engine.md`.

- ``instances``: the data model, objects in a tree.
- ``values``: the value types of scripts, such as CFrame and Enum.
- ``physics``: moving and colliding bodies; the only user of rapier3d.
- ``parts``: parts with their bodies, touches, welds, movers and queries.
- ``characters``: models that walk.
- ``animations``: animation tracks that play on characters.
- ``tweens``: properties that change over time.
- ``gui``: the screen of each player, and clicks on it.
- ``signals``: events of instances.
- ``scripts``: the scripts of a world, and the order in which they run.
- ``scheduler``: waiting threads, script failures, the length of a tick.
- ``thread_records``: records of waiting threads and of errors that ended threads.
- ``shapes``: the snapshot format and its validation.
- ``saved_state``: saving and restoring a part of a world.
- ``slots``: the Luau values held by the engine, in a snapshot.
- ``services``: the services that ``game:GetService`` returns.
- ``datastore``: rows that outlive a world.
- ``world``: combines the others: ticks, observations, snapshots.
- ``json_text``: Luau values as JSON text.
- ``errors``: exceptions, conversion of text, and suggestions for misspelled names.
- ``page``: the host page and renderers for people, as static files.
- ``settings``: the ``world.toml`` of a world.
- ``script_watch``: restarts the program when a script changes.
- ``watchdog``: the last defence against scripts that exhaust the machine's resources.
- ``runner``: the program.
"""
