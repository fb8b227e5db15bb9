"""Writing to terminals and pipes.

- ``streams``: standard output and error, with control characters escaped.
- ``width``: the width of tables.
- ``output``: output that does not block the event loop, and queued lines.
- ``screen``: the last lines of a terminal, redrawn in place; progress bars.
- ``keyboard``: keys typed while a table is shown.
- ``reports``: warnings of the library, and defects of displays.
"""
