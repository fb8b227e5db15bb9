"""Tasks, threads and deadlines that stay correct under any cancellation.

- ``tasks``: separate tasks that outlive a cancelled caller.
- ``threads``: blocking work in threads, alone or in batches, interrupted by a cancellation; a
  regular check for many tasks.
- ``per_loop``: objects that exist once in each event loop.
- ``deadlines``: deadlines that count only the time in which this process ran; loop lag.
- ``portal``: the event loop in a thread behind all sync classes.
- ``synchronous``: turns async methods and streams into sync ones.
- ``progress``: progress of an operation, on a line or in the caller's function.
- ``batch``: an operation on many instances: outcomes as they arrive, or all together.
"""
