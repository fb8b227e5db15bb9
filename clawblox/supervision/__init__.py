"""What supervises a process tree, whether of an instance or of an agent.

- ``tree``: the processes with one cookie: guarded, ended down the ladder, released.
- ``shared_stop``: one stop of a supervised task, shared by all that ask for it.
- ``lifecycle``: a table of legal moves between states; restarts within a budget. Pure.
"""
