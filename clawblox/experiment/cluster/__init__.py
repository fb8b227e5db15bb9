"""Attempts on the nodes of a cluster: the protocols in ``schedule.ports`` over calls.

- ``remote_backend``, ``remote_attempt``: the driver's side.
- ``host``, ``host_files``: one attempt on a node, with its own ``LiveBackend``. They are
  independent of the engine.
- ``node``, ``scratch``: the machine and the process of a host, and its directories.
- ``messages``: the messages between the two sides.
- ``calls``, ``lease``: numbered calls, and the lease that limits how long each side relies on the
other.
- ``trees``, ``chunks``, ``mirror``: transfer of directories, files and growing files.
- ``engine``: the protocol that places hosts and carries calls; ``ray_engine`` implements it with
  Ray. ``connect`` opens it.
"""
