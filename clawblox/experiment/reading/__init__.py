"""An experiment as its directory records it, whoever runs it.

- ``record``: its plan, its lines and the state that follows from them.
- ``selection``: finds a checkpoint or a generation from its description.
- ``overview``: the experiments below a directory, each in a few facts.
- ``inspection``: a generation with its attempts, its agents and its files.
"""
