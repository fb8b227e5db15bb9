"""What is shown, as text. Nothing here prints.

- ``board``: the table of a run.
- ``instance_states``: the state of each instance, kept from events.
- ``event_lines``: events as lines.
- ``interruptions``: what of an interrupted run goes on.
- ``lineage_layout``: where everything in the picture of a lineage is.
- ``lineage_svg``, ``lineage_text``: a lineage as a picture, and as text.
- ``lineage_words``: what its pictures, tables and tooltips say.
- ``archives``: archives and their members.
- ``formatting``: durations, sizes, ends, paths, columns.
"""
