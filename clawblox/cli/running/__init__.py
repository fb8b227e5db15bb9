"""Running worlds for a command: one or many, in the foreground or in the background.

- ``foreground``: one world from start to end, for ``run``.
- ``companion``: the agent in that world.
- ``run_agents``: what is recorded of that agent, so that it can continue.
- ``agent_resume``: how ``resume`` restores it.
- ``resume_sources``: what ``run --resume`` means where it names a run.
- ``start_progress``: how a start is going.
- ``batch_run``: many instances, here or in the background.
- ``background``: an orchestrator in the background.
- ``signals``: the signals that end a command.
- ``orchestrator``: many instances from start to end.
- ``instance_states``: the state of each of them, kept from events.
- ``displays``: what is shown meanwhile: the live table, or lines.
- ``scopes``: what ``ps`` shows: one run, or several.
- ``watching``: ``ps --watch``: watching runs from outside.
- ``resuming``: what ``resume`` and ``up --continue`` share.
- ``run_dirs``: the world and the run directory of a command.
- ``saves``: ``save``, and the saves of ``fork`` and ``stop``.
- ``shell_words``: command lines to paste.
"""
