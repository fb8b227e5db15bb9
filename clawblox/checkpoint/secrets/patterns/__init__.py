"""Finds secrets in a piece of content, by shape and by value, in any spelling.

- ``rules``: the shapes of credentials, as data.
- ``shapes``: searches for the shapes.
- ``plausible``: distinguishes credentials from names, words, constants, invented values and
  published samples, whose digests are in ``sample_digests.txt``.
- ``known``: searches for secrets that are known by value.
- ``accelerator``: skips texts without matches, with ``google-re2``.
- ``base64_runs``: finds and decodes base64.
- ``views``: other readings of the same bytes.
"""
