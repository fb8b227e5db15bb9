"""From an archive to files in a run directory, completely or not at all.

- ``load``: the order of one load, how it is undone, and the snapshot alone.
- ``placing``: where each member belongs.
- ``staging``: a tree that appears at once.
"""
