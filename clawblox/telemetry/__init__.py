"""Events, logs and metrics of running worlds.

- ``events``: events, for every listener.
- ``logs``: opens and cuts the log that a world writes directly, and reads its last lines.
- ``log_reader``: the lines of a growing log, with notes.
- ``log_segments``: a log that continues in another file when it is too long.
- ``log_times``: the index of a log with the arrival times of its lines, and the lock for cuts.
- ``log_index``: writes the index.
- ``log_watch``: inspects logs once a second, and cuts logs that are too long.
- ``metrics``: counters and histograms as plain values.
- ``own_log``: the library's own log.
- ``prometheus``: the metrics for Prometheus (extra ``metrics``).
- ``tail``: reads the lines of a growing log, and finds their borders.
- ``throttle``: limits the reports of an event, and admitted amounts.
"""
