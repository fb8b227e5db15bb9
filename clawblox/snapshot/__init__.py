"""From ``GET /snapshot`` to a verified file on disk.

- ``capture``: one snapshot, with its deadline.
- ``transfer``: the bytes, from the socket to the file.
- ``checker``: reading large documents in a process of its own.
- ``rows``: the rows of data stores beside a snapshot.
- ``header``: reading ``format`` and ``time`` of a document.
"""
