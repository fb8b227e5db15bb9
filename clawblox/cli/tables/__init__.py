"""What is shown, as text: tables, event lines, archives.

- ``board``: the table of a run.
- ``instance_states``: where the instances stand.
- ``event_lines``: events in words.
- ``archives``: archives and their members.
"""
