"""A VM as a JSON-able document, and back.

- `snapshot`: writes a document
- `restore`: reads a document into a new VM, and checks all of it
- `read_values`, `read_frames`: values, and suspended calls with their variables
"""
