"""Attempts on the nodes of a cluster: the protocols in ``schedule.ports`` over calls.

- ``host``: runs one attempt on a node, with a ``LiveWorkshop`` of its own; knows no engine.
- ``workshop``, ``remote_attempt``, ``remote_view``: the driver's side of it.
- ``calls``, ``lease``: numbered calls, and how long each side may count on the other.
- ``trees``, ``chunks``, ``mirror``: directories, files and growing files that travel.
- ``engine``: what places hosts and carries calls; ``ray_engine`` is Ray, ``local_engine`` a process
  of this machine for each host.
- ``connect``: chooses the engine; ``node``: the facts of a node's machine.
"""
