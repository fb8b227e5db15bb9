"""An experiment as its directory records it, whoever runs it.

- ``record``: its plans, its lines and the state that follows; finds checkpoints and generations.
- ``overview``: the experiments below a directory, each in a few facts.
- ``inspection``: a generation with its attempts, its agents and its files.
"""
