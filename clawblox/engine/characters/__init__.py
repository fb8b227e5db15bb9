"""Characters: models that walk.

- ``walker``: how one character moves among solid parts.
"""
