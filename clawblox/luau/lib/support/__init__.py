"""Parts of the libraries that scripts do not see.

- `registry`: the names of all built-in functions, and those that came after a format of documents
- `arguments`: checks and conversions of arguments
- `patterns`, `fastpatterns`: matching string patterns
- `textformat`, `packing`: ``string.format``, ``string.pack`` and ``string.unpack``
- `sorting`: ``table.sort``
"""
