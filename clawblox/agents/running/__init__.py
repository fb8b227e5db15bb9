"""Running agents: one task owns an agent from its start to the last of its processes.

- ``agenda``: the next message to an agent.
- ``dialogue``: state of the dialogue with a process: conversation, turn, errors, delays of retries.
- ``hooks``: the environment of an agent: sandbox, access to worlds, window, status.
- ``start_request``: the values of a start.
- ``bookkeeping``: state of a started agent, and its observers.
- ``conversation``: the recorded conversation, and the proof on disk that a program is in it.
- ``preparation``: the files that a start needs; environment, version and check of the program.
- ``program``: a process's standard input, its log and the intervals between polls, its exit.
- ``agent_process``: one process, from its spawn to its exit.
- ``owner``: the task.
"""
