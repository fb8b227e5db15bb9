"""Acting in a running world from a shell: ``play`` and ``act``.

- ``session``: the commands of a session, and news that arrive between them.
- ``consoles``: input and output of a session.
- ``editor``: the line editor of a terminal.
- ``lines``: typed lines as commands, and the inputs that a world's documentation shows.
"""
