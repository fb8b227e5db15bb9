"""Tasks, threads and deadlines that keep their promises under any cancellation.

- ``tasks``: tasks of their own, which outlive a cancelled caller.
- ``threads``: blocking work in threads, alone or in batches, interrupted by a cancellation.
- ``per_loop``: objects of which each event loop has one.
- ``deadlines``: deadlines that count only the time in which this process ran.
- ``batch``: one operation on many instances: outcomes as they land, or all at once.
"""
