"""Reports while worlds run: events, logs and metrics.

- ``events``: events, for every listener.
- ``logs``: the log that a world writes itself: opening, its last lines, cutting.
- ``log_reader``: the lines of a log while it grows, with notes.
- ``log_segments``: a log that continues in another file when it has become too long.
- ``log_times``: when its lines arrived: the index of the log, its reader, and the lock for cuts.
- ``log_index``: writes that index.
- ``log_watch``: inspects logs once a second, and cuts logs that are too long.
- ``metrics``: counters and histograms as plain values.
- ``own_log``: the log of the library itself.
- ``prometheus``: the metrics for Prometheus (extra ``metrics``).
- ``tail``: the lines of a log, read while it grows, and their borders.
- ``throttle``: limits of how often an event is reported, and of how much is admitted.
"""
