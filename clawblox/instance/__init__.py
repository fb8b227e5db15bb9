"""One process tree, from the lease of its port until it is reaped.

- ``supervisor``: the one task that owns an instance.
- ``lifecycle``: the states of an instance, its moves, and its restart budget.
- ``startup``: one start, from its port to readiness.
- ``launcher``: the thread that spawns and probes.
- ``ramp``: how many starts may be under way.
- ``launch``: what a start, or many, mean.
- ``environment``: command and environment of its processes.
- ``instance``: what an instance holds, taken and given back.
- ``stages``: what it has reached, as values.
- ``processes``: its processes.
- ``health``: when a world is ready, and whether it still answers.
- ``calls``: calls that fail when their instance ends.
- ``failures``: what went wrong, as a public error.
"""
