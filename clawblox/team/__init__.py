"""Teams: a world and the agents in it, run and saved together.

- ``live_run``: agents in one instance of a world, and their checkpoints.
- ``run_resume``: resumes an interrupted instance and its agents from one checkpoint.
- ``record``: the options and the record of the agent of a run.
- ``idle_moments``: moments in which no agent is in the middle of a turn, and archives made in them.
- ``async_checkpointer``, ``sync_checkpointer``: checkpoints at an interval.
- ``pointer``: the file that names the latest archive.
- ``cleaning``: finds and removes unneeded files of ended runs.
"""
