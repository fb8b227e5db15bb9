"""Acting in a running world from a shell: ``play`` and ``act``.

- ``lines``: what is typed, as commands.
- ``examples``: the inputs that a world's documentation shows.
- ``values``: observations as text.
- ``differences``: what changed between two observations.
- ``paths``: paths into an observation.
"""
