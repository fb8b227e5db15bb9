"""Characters: models that walk.

- ``crowd``: `Characters`, the phase of a tick in which they move, and how players get theirs.
- ``character``: one Humanoid: its requests, states and events, and what scripts call on it.
- ``walker``: how one character moves among solid parts; numbers only.
"""
