"""The archive as a file: its bytes, its members, its place in a run.

- ``layout``: the profile of the zip format.
- ``metadata``: ``metadata.json`` as bytes and back.
- ``reader``: reading archives that may come from a stranger.
- ``writer``: writing the members.
- ``packing``, ``ahead``: one source as a member; several at once, in threads.
- ``deflate``: what compresses: isal or zlib.
- ``earlier``: members of earlier archives, which can be copied.
- ``intake``: reading a file that may change in the meantime.
- ``publish``: complete or absent.
- ``registry``: the entry in the manifest of the run.
"""
