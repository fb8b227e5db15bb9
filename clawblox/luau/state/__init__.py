"""Conversion of a VM to a JSON-able document, and back.

- `snapshot`: writes a document
- `restore`: reads a document into a new VM, with complete checks
- `read_values`, `read_frames`: values, and suspended calls with their variables
"""
