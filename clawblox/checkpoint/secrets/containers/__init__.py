"""Decodes packed and compressed content, in bounded memory.

- ``decoder``: the interfaces of decoders, and the codecs of gzip, zlib, bzip2, xz and Zstandard.
- ``detect``: recognises containers by their first bytes.
- ``beginnings``: finds the starts of containers inside other content; also decodes pictures.
- ``archives``: decodes zip and tar.
"""
