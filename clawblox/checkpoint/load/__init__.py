"""From an archive to files in a run directory, completely or not at all.

- ``load``: the order of one load, and how it is undone.
- ``snapshot``: the world's document alone.
- ``placing``: where each member belongs.
- ``staging``: a tree that appears at once.
"""
