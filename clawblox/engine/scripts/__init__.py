"""The scripts of a world: its files, when they run, and their globals.

- ``script_tree``: the main script and the script tree on disk.
- ``script_files``: names, classes and directories of script files.
- ``project_files``: script trees that a project file of Rojo describes.
- ``require_paths``: the paths that ``require`` takes.
- ``script_runner``: when scripts run.
- ``modules``: ``require``.
- ``script_globals``: the globals ``require``, ``warn``, ``Instance``, ``task`` and time.
"""
