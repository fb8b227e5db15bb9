"""Attempts with real worlds and agents; implements the protocols in ``schedule.ports``.

- ``live_backend``, ``preparing``, ``attempt_files``: make attempts, and their run directories.
- ``live_attempt``, ``attempt_agents``, ``attempt_errors``: an attempt, its agents and its errors.
- ``branches``: the agents of a branch, forked from those in a checkpoint.
- ``run_directories``: makes, checks, prunes and renames run directories.
- ``workspaces``: fills the workspaces of new agents.
- ``left_attempts``: ends worlds and agents that killed orchestrators have left running.
- ``credentials``, ``prompts``: variables, accounts and system prompts of agents.
- ``hooks``: the live view of a generation for hooks.
- ``survey``: checks the whole experiment before it starts.
"""
