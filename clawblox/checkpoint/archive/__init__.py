"""The archive as a file: its bytes, its members, its place in a run.

- ``layout``: the profile of the zip format.
- ``metadata``: ``metadata.json`` as bytes and back.
- ``reader``: reading archives that may come from a stranger.
- ``writer``: writing the members.
- ``intake``: reading a file that may change meanwhile.
- ``publish``: complete or absent.
- ``registry``: the entry in the manifest of the run.
"""
