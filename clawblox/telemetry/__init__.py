"""What is reported while worlds run: events, logs and metrics.

- ``events``: what happened, for every listener.
- ``logs``: the log that a world writes itself, and its readers.
- ``log_segments``: a log that goes on in another file when it has become too long.
- ``log_locks``: its lock, for cuts.
- ``log_times``: when its lines arrived: the index beside it, and its reader.
- ``log_index``: writes that index, and cuts logs that are too long.
- ``metrics``: counters and histograms as plain values.
- ``own_log``: the log of the library itself.
- ``prometheus``: the same for Prometheus (extra ``metrics``).
- ``loop_lag``: how late the event loop is.
- ``throttle``: how often an event is reported, and how much of something is admitted.
"""
