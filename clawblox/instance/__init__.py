"""A single instance: its process tree, from the lease of its port until it is reaped.

- ``supervisor``: the task that owns an instance.
- ``local``: the instance as its supervisor uses it, and its memory limit.
- ``lifecycle``: the states of an instance, their transitions, its end, the delays before restarts.
- ``restart_source``: the saves for restarts, and requests for restarts.
- ``watch``: watches from readiness to exit: halts, rates, script errors.
- ``bookkeeping``: writes the record, the manifest and the log index.
- ``launcher``: the thread that spawns and probes.
- ``ramp``: the limit on concurrent starts.
- ``launch``: the options of a start, resolved to paths, names and seeds.
- ``seeds``: the seeds of starts.
- ``environment``: the command and environment of its processes.
- ``instance``: acquires and releases the resources of an instance.
- ``running``: the name and the processes, as stages.
- ``health``: probes for readiness and liveness.
- ``listening``: detects worlds that listen at a wrong address, or no longer listen.
- ``calls``: calls that fail when the instance ends.
- ``failures``: turns failures into public errors.
"""
