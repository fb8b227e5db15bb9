"""Tasks, threads and deadlines that keep their promises under any cancellation.

- ``tasks``: tasks of their own, which outlive a cancelled caller.
- ``threads``: blocking work in threads, alone or in batches, interrupted by a cancellation.
- ``lookout``: one regular look for all who wait for a condition that only a blocking check can see.
- ``per_loop``: objects of which each event loop has one.
- ``deadlines``: deadlines that count only the time in which this process ran.
- ``portal``: the event loop in a thread behind all sync classes.
- ``synchronous``: turns async methods and streams into sync ones.
- ``progress``: how far an operation is, on a line or in the caller's function.
- ``batch``: one operation on many instances: outcomes as they land, or all at once.
"""
