"""The archive as a file: its bytes, its members, its place in a run.

- ``layout``: the profile of the zip format.
- ``metadata``: ``metadata.json`` as bytes and back.
- ``reader``: reading archives that may come from a stranger.
- ``writer``: writing the members; threads pack the small files.
- ``packing``: packing a source as a member.
- ``earlier``: copying members from earlier archives.
- ``intake``: reading a file that may change in the meantime.
- ``registry``: publishing an archive, and its entry in the manifest of the run.
"""
