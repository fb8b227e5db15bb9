"""Decodes packed and compressed content, in bounded memory.

- ``decoder``: the interfaces of decoders, and the codecs of gzip, zlib, bzip2, xz and Zstandard.
- ``detect``: which container a content is, by its first bytes.
- ``beginnings``: where a container begins inside a content; also pictures.
- ``archives`` (zip and tar), ``git``: the other formats.
"""
