"""Running worlds for a command: one or many, in the foreground or in the background.

- ``foreground``: one world from start to end, for ``run``.
- ``companion``: the agent in that world.
- ``resume_sources``: the runs that ``run --resume`` names, and the agents that ``resume`` restores.
- ``slow_work``: the progress of slow starts, saves and loads.
- ``batch_run``: many instances from start to end, here or in the background.
- ``background``: an orchestrator in the background.
- ``runner``: runs a command until it ends or a signal ends it.
- ``instance_states``: the state of each instance, derived from events.
- ``displays``: shows work as lines or as a table.
- ``live_table``: the table and its keys.
- ``run_scenes``: runs as displays see them, and ``ps --watch``.
- ``run_actions``: views of and actions on the selected instance.
- ``experiment_scenes``: experiments as displays see them.
- ``resuming``: the common parts of ``resume`` and ``up --continue``.
- ``run_dirs``: the world and the run directory of a command.
- ``experiment_run``: an experiment from start to end, here or in the background.
- ``experiment_choice``: the default experiment or run of a command without an argument.
- ``smoke_run``: runs each condition of a plan for a minute.
"""
