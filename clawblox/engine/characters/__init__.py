"""Characters: models that walk.

- ``crowd``: `Characters`, the phase of a tick in which they move.
- ``spawning``: the characters of players, and their spawn positions.
- ``character``: a Humanoid: its requests, states, events, methods and description.
- ``tools``: tools held by characters, and the backpacks of players.
- ``walker``: the motion of a character among solid parts, in numbers only.
"""
