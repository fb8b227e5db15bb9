"""Teams: a world and the agents in it, run and saved together.

- ``async_team``: AsyncTeam.
- ``sync_team``: Team and Checkpointer, the same without ``await``.
- ``crew``: agents in one instance of a world, from their connection to their end.
- ``record``: the record of a run's agents, by which they can continue.
- ``resume``: resumes an interrupted instance and its agents from one checkpoint.
- ``checkpoints``: AsyncCheckpointer, and the moments between turns in which archives are made.
- ``pointer``: the file that names the latest archive.
- ``cleaning``: finds and removes unneeded files of ended runs.
"""
