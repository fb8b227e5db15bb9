"""Reads experiments from their directories, in any process.

- ``record``: the plans, lines and state of an experiment; finds checkpoints and generations.
- ``overview``: a summary of each experiment below a directory.
- ``inspection``: a generation with its attempts, its agents and its files.
"""
