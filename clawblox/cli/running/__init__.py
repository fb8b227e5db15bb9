"""Running worlds for a command: in the foreground, in the background, one or many.

- ``foreground``: one world from start to end.
- ``batch_run``: many: what ``up`` and ``fork`` share.
- ``orchestrator``: many from start to end, and the signals that end them.
- ``background``: an orchestrator in the background.
- ``displays``: what a person sees meanwhile.
- ``live``: the live table.
- ``watching``: watching a run of another process.
- ``relay``: showing what lands while the rest goes on.
- ``saves``: saving what runs.
- ``worlds``: opening a world for a command.
- ``progress``: the progress line of a slow start.
"""
