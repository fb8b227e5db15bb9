"""Supervision of a process tree, of an instance or of an agent.

- ``tree``: the processes with one cookie: guarded, ended down the ladder, released;
  and the stop that all callers share.
- ``orphans``: processes that killed orchestrators have left behind.
- ``lifecycle``: a table of legal moves between states; restarts within a budget. Pure.
"""
