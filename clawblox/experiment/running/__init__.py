"""An experiment that this process has open.

- ``opening``: creates an experiment in its directory, or compares it with its plan.
- ``open_experiment``: owns the parts of an open experiment, and answers requests.
- ``experiment_run``: runs chains.
- ``backends``: chooses where attempts run.
- ``events``: the events of an experiment.
- ``forking``, ``rescoring``: branches of a checkpoint, and new scores.
"""
