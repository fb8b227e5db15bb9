"""Running agents: one task owns an agent from its start to the last of its processes.

- ``lifecycle``: the states of an agent, and the delays of retries.
- ``agenda``: the next message to an agent.
- ``dialogue``: state of the dialogue with a process: session, turn, errors.
- ``hooks``: the surroundings of an agent: sandbox, access to worlds, window, status.
- ``order``: the order of a start.
- ``bookkeeping``: state of a started agent, and its observers.
- ``session``: the recorded conversation, its proof on disk, and reports not yet counted.
- ``preparation``: files that a start needs, the version and the check of the program.
- ``output``: reading the log, and the intervals between polls.
- ``program``: a process's standard input and error, and its exit.
- ``attempt``: one process, from its spawn to its exit.
- ``owner``: the task.
"""
