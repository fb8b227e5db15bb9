"""Decodes packed and compressed content, in bounded memory.

- ``decoder``: the interfaces of decoders, and what decoders have in common.
- ``detect``: which container a content is, by its first bytes.
- ``beginnings``: where a container begins inside a content.
- ``streams``: gzip, zlib, bzip2, xz and Zstandard.
- ``archives`` (zip and tar), ``pngs``, ``git``: the other formats.
"""
