"""The archive as a file: its bytes, its members, its place in a run.

- ``layout``: the profile of the zip format.
- ``metadata``: ``metadata.json`` as bytes and back.
- ``reader``: reads archives, which may come from a stranger.
- ``writer``: writes the members; threads pack the small files.
- ``packing``: packs a source as a member.
- ``earlier``: copies members from earlier archives.
- ``intake``: reads a file that may change in the meantime.
- ``registry``: publishes an archive, and registers it in the manifest of the run.
"""
