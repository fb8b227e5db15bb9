"""Characters: models that walk.

- ``crowd``: `Characters`, the phase of a tick in which they move.
- ``spawning``: how players get their characters, and where.
- ``character``: a Humanoid: its requests, states, events and methods, and what it wears.
- ``tools``: what characters hold, and the backpacks of players.
- ``walker``: the motion of a character among solid parts; numbers only.
"""
