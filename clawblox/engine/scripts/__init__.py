"""The scripts of a world: its files, when they run, and their globals.

- ``script_tree``: the main script and the script tree on disk, or as a project file describes it.
- ``script_files``: names, classes and directories of script files.
- ``script_runner``: when scripts run.
- ``modules``: ``require``: the paths that it takes, and what it returns.
- ``script_globals``: the globals ``require``, ``warn``, ``Instance``, ``task`` and time.
"""
