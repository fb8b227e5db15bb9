"""Tasks, threads and deadlines that keep their promises under any cancellation.

- ``tasks``: tasks of their own, which outlive a cancelled caller.
- ``threads``: blocking work in threads, alone or in batches.
- ``deadlines``: deadlines that count only the time in which this process ran.
- ``batch``: one operation on many instances: outcomes as they land, or all at once.
"""
