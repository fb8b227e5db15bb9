"""From ``GET /snapshot`` to a verified file on disk.

- ``capture``: the bytes, from the socket to the file, within a deadline.
- ``checker``: reading large documents in a separate process.
- ``rows``: the rows of data stores that belong to a snapshot.
- ``header``: reading ``format`` and ``time`` of a document.
"""
