"""Selects the files of agents that an archive may contain.

The directories belong to agents and may change while they are read.

- ``plan``: the workspaces and conversations of all agents.
- ``workspace``: the entries of a workspace that archives may contain.
- ``tree``: walks directories through descriptors, never through links.
- ``repositories``: the settings of git repositories, and the files that a load writes from them.
- ``git_config``: the configuration files of git.
- ``policy``: the names of a workspace that are left out.
- ``policy_names``: those names, as data.
- ``conversations``: the conversations of each agent program.
"""
