"""Writing to terminals and pipes without blocking.

- ``output``: standard output, notes, units.
- ``screen``: lines that are redrawn.
- ``outbox``: queued output lines.
- ``warnings``: warnings of the library.
"""
