"""Acting in a running world from a shell: ``play`` and ``act``.

- ``game``: ``play`` from start to end.
- ``session``: the commands of a session, and what happens meanwhile.
- ``agents``: the agent in the world.
- ``choices``: the name of the agent, and the instance that it joins.
- ``consoles``: where lines come from and go to.
- ``editor``: the line editor of a terminal.
- ``lines``: what is typed, as commands.
- ``chat``: chat messages.
- ``examples``: the inputs that a world's documentation shows.
- ``values``: observations as text.
- ``differences``: what changed between two observations.
- ``paths``: paths into an observation.
"""
