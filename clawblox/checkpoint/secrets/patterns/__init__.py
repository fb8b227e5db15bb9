"""Finds secrets in a piece of content, by shape and by value, in any spelling.

- ``rules``: the shapes of credentials, as data.
- ``shapes``: searches for the shapes.
- ``plausible``: distinguishes credentials from names, words and constants, from values that were
  made up for a document, and from published samples, by the digests in ``sample_digests.txt``.
- ``known``: searches for secrets that are known by value.
- ``accelerator``: rules texts out with ``google-re2``.
- ``base64_runs``: finds and decodes base64.
- ``views``: other readings of the same bytes.
"""
