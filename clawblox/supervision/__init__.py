"""Supervision of the process tree of an instance or an agent.

- ``tree``: the processes with one cookie, which are guarded, ended down the ladder and released;
  and the stop that all callers share.
- ``program``: a program with its own tree, whose output is read while it runs.
- ``orphans``: processes that killed orchestrators have left behind.
- ``lifecycle``: a table of legal moves between states; restarts within a budget. Pure.
"""
