"""Parts of the libraries that are hidden from scripts.

- `registry`: the names of all built-in functions, and late names
- `arguments`: checks and conversions of arguments
- `patterns`, `fastpatterns`: matching of string patterns
- `textformat`, `packing`: ``string.format``, ``string.pack`` and ``string.unpack``
- `sorting`: ``table.sort``
"""
