"""Restores an archive to files in a run directory, completely or not at all.

- ``load``: the steps of a load, undoing a load, and extracting only the snapshot.
- ``placing``: the place of each member.
- ``staging``: builds a tree that appears in a single step.
"""
