"""Attempts on real worlds and agents: the implementation of the protocols in ``schedule.ports``.

- ``live_backend``, ``preparing``, ``attempt_files``: make attempts, and their run directories.
- ``live_attempt``, ``attempt_agents``, ``attempt_errors``: an attempt, its agents and its errors.
- ``branches``: the agents of a branch, forked from those in a checkpoint.
- ``run_directories``: makes, checks, prunes and renames run directories.
- ``workspaces``: fills the workspaces of new agents.
- ``left_attempts``: ends what killed orchestrators have left running.
- ``credentials``, ``prompts``: variables, accounts and system prompts of agents.
- ``hooks``: the live view of a generation that hooks get.
- ``survey``: looks for every fault before anything starts.
"""
