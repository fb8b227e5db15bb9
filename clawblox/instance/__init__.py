"""One instance: its process tree, from the lease of its port until it is reaped.

- ``supervisor``: the one task that owns an instance.
- ``local``: the instance as its supervisor drives it, and the limit of its memory.
- ``lifecycle``: the states of an instance, their transitions, its end, the pauses before restarts.
- ``restart_source``: what an instance is restarted from, and the request of a restart.
- ``watch``: from its readiness to its exit; halts, and worlds slower than real time.
- ``bookkeeping``: writes its record, its manifest and the index of its log.
- ``launcher``: the thread that spawns and probes.
- ``ramp``: the limit on concurrent starts.
- ``launch``: the options of a start, resolved to paths, names and seeds.
- ``seeds``: the seeds of starts.
- ``environment``: the command and environment of its processes.
- ``instance``: acquires and releases the resources of an instance.
- ``running``: its name and its processes, as stages that it reaches.
- ``health``: when a world is ready, and whether it still answers.
- ``listening``: where a world listens that is never ready, and whether one that was still does.
- ``calls``: calls that fail when their instance ends.
- ``failures``: turns what went wrong into a public error.
"""
