"""What a secret looks like, by shape and by value, in any spelling.

- ``rules``: the shapes of credentials, as data.
- ``shapes``: searching for the shapes.
- ``plausible``: what tells a credential from a placeholder.
- ``known``: secrets known by value.
- ``spelling``: how a value is written where it must be escaped.
- ``accelerator``: ruling texts out with ``google-re2``.
- ``base64_runs``: base64 in a text.
- ``views``: other readings of the same bytes.
"""
