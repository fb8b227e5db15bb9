"""Writing to terminals and pipes without blocking.

- ``streams``: the guard in front of both: no control character of others passes.
- ``output``: standard output, messages on standard error.
- ``screen``: lines that are redrawn in place.
- ``progress_bar``: a progress bar.
- ``outbox``: queued output lines.
- ``warnings``: warnings that the library logs.
"""
