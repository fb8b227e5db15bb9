"""Teams: a world and the agents in it, run and saved together.

- ``async_team``: AsyncTeam.
- ``sync_team``: Team, the same without ``await``.
- ``crew``: agents in one instance of a world, from their connection to their end.
- ``record``: the record of a run's agents, by which they can continue.
- ``resume``: resumes an interrupted instance and its agents from one checkpoint.
- ``idle_moments``: moments in which no agent is in the middle of a turn, and archives made in them.
- ``async_checkpointer``, ``sync_checkpointer``: checkpoints at an interval.
- ``pointer``: the file that names the latest archive.
- ``cleaning``: finds and removes unneeded files of ended runs.
"""
