"""Parts of the libraries that scripts do not see.

- `registry`: the names of all built-in functions
- `late`: names that documents leave out, because they came after the format
- `arguments`: checks and conversions of arguments
- `patterns`, `fastpatterns`: matching string patterns
- `textformat`, `packing`: ``string.format``, ``string.pack`` and ``string.unpack``
- `sorting`: ``table.sort``
"""
