"""Running worlds for a command: one or many, in the foreground or in the background.

- ``foreground``: one world from start to end, for ``run``.
- ``companion``: the agent in that world.
- ``resume_sources``: the runs that ``run --resume`` names, and agents that ``resume`` restores.
- ``slow_work``: how slow starts, saves and loads are going.
- ``batch_run``: many instances from start to end, here or in the background.
- ``background``: an orchestrator in the background.
- ``runner``: runs a command until it ends or a signal ends it.
- ``instance_states``: the state of each of them, kept from events.
- ``displays``: shows work in lines, or in a table.
- ``live_table``: that table, with its keys.
- ``run_scenes``: runs as displays see them, and ``ps --watch``.
- ``run_actions``: shows and does something with an instance that was selected.
- ``experiment_scenes``: experiments as displays see them.
- ``resuming``: what ``resume`` and ``up --continue`` share.
- ``run_dirs``: the world and the run directory of a command.
- ``experiment_run``: an experiment from start to end, here or in the background.
- ``experiment_choice``: the experiment or run that a command means without an argument.
- ``smoke_run``: runs each condition of a plan for a minute.
"""
