"""What is shown, as text. Nothing here prints.

- ``board``: the table of a run.
- ``instance_states``: the state of each instance, kept from events.
- ``event_lines``: events as lines.
- ``interruptions``: what of an interrupted run goes on.
- ``archives``: archives and their members.
- ``formatting``: durations, sizes, ends, paths, columns.
"""
