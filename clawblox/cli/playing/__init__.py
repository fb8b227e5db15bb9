"""Acting in a running world from a shell: ``play`` and ``act``.

- ``session``: the commands of a session, and what happens meanwhile.
- ``consoles``: where lines come from and go to.
- ``editor``: the line editor of a terminal.
- ``lines``: typed lines as commands, and the inputs that a world's documentation shows.
"""
