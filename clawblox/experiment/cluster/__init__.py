"""Attempts on the nodes of a cluster: the protocols in ``schedule.ports`` over calls.

- ``remote_backend``, ``remote_attempt``: the driver's side.
- ``host``, ``host_files``: one attempt on a node, with a ``LiveBackend`` of its own. They know no
  engine.
- ``node``, ``scratch``: the machine and the process of a host, and its directories.
- ``messages``: what the two sides send each other.
- ``calls``, ``lease``: numbered calls, and how long each side may count on the other.
- ``trees``, ``chunks``, ``mirror``: directories, files and growing files that travel.
- ``engine``: what places hosts and carries calls; ``ray_engine`` is Ray. ``connect`` opens it.
"""
