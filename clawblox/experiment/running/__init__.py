"""An experiment while one process has it open: from its opening to the end of its runs.

- ``opening``: begins an experiment in its directory, or compares it with its plan.
- ``open_experiment``: owns all that exists while an experiment is open, and answers requests.
- ``experiment_run``: the time in which the process runs its chains.
- ``backends``: chooses where attempts run.
- ``events``: what an experiment reports.
- ``forking``, ``rescoring``: branches that begin at a checkpoint, and new scores.
"""
