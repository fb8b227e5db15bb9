"""The scripts of a world: its files, when they run, and their globals.

- ``script_files``: the main script and the script tree on disk.
- ``script_runner``: when scripts run.
- ``modules``: ``require``.
- ``script_globals``: the globals ``require``, ``warn``, ``Instance``, ``task`` and time.
"""
