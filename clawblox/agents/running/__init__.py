"""Running agents: one task owns an agent from its start to the last of its processes.

- ``lifecycle``: the states of an agent, and what is tried again.
- ``agenda``: what an agent is told next.
- ``dialogue``: what a process of its program has said: session, turn, errors.
- ``hooks``: what surrounds an agent: sandbox, access to worlds, window, status.
- ``order``: what is started.
- ``bookkeeping``: what is known of an agent, and who is told of it.
- ``session``: the recorded conversation, its proof on disk, and reports of it not yet counted.
- ``version``: asking a program for its version.
- ``preparation``: files that a start needs, and the check of the program.
- ``output``: reading the log, and when.
- ``program``: its standard input and error, and its exit.
- ``attempt``: one process, from its spawn to its exit.
- ``owner``: the task.
"""
