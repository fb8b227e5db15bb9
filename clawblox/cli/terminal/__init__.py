"""Writing to terminals and pipes.

- ``streams``: standard output and error, through which no foreign text reaches a terminal raw.
- ``output``: writing without blocking the event loop, and queued lines.
- ``screen``: the last lines of a terminal, drawn over again; progress bars.
- ``keyboard``: keys that are typed while a table is drawn.
- ``reports``: warnings of the library, and defects of displays.
"""
