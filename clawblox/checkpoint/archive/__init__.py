"""The archive as a file: its bytes, its members, its place in a run.

- ``layout``: the profile of the zip format.
- ``metadata``: ``metadata.json`` as bytes and back.
- ``reader``: reading archives that may come from a stranger.
- ``writer``: writing the members, the small ones packed in threads.
- ``packing``: one source as a member.
- ``earlier``: members of earlier archives, which can be copied.
- ``intake``: reading a file that may change in the meantime.
- ``registry``: publishing an archive, and its entry in the manifest of the run.
"""
