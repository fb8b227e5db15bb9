"""The checks of ``clawblox doctor``.

Each check is a small function that looks at one thing and undoes what it tried. Nothing prints.

- ``machine``: kernel, clock, limits, network, and processes left behind.
- ``software``: optional extras, and other programs.
- ``agents``: the agents' programs, and what their sandboxes need.
- ``directories``: file systems: space, locks, links, sockets, speed.
"""
