"""The engine: worlds made of Luau scripts, with physics and state that can be saved.

It stands on ``luau`` and ``server`` only and is started as a program, like any other world:
``python -m clawblox.engine DIR``. `docs/engine.md` explains it.
"""
