"""Supervision of a process tree, of an instance or of an agent.

- ``tree``: the processes with one cookie: guarded, ended down the ladder, released;
  and the stop that all callers share.
- ``program``: a program whose output is read while it runs, with a tree of its own.
- ``orphans``: processes that killed orchestrators have left behind.
- ``lifecycle``: a table of legal moves between states; restarts within a budget. Pure.
"""
