"""Characters: models that walk.

- ``crowd``: `Characters`, all of them and the phase of a tick in which they move.
- ``character``: one Humanoid: its requests, states and events.
- ``walker``: how one character moves among solid parts; numbers only.
- ``humanoid``: what scripts call on a Humanoid.
- ``spawning``: how players get their characters.
"""
