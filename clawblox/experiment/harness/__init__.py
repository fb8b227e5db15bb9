"""Continues what the public generation scripts began, and lets them continue what began here.

- ``script_files``: reads what the scripts record, and checks all of it.
- ``takeover``: records that in the journal of an experiment.
- ``login_file``: the login of Claude Code in a file.
"""
