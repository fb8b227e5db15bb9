"""The scripts of a world: files, order of execution, and globals.

- ``script_tree``: the main script and the script tree, from a directory or a project file.
- ``script_files``: names, classes and directories of script files.
- ``script_runner``: starting the scripts of a world.
- ``modules``: ``require``: its paths and results.
- ``script_globals``: the globals ``require``, ``warn``, ``Instance``, ``task`` and time.
"""
