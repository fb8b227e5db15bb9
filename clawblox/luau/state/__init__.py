"""A VM as a JSON-able document, and back.

- `snapshot`: writes a document
- `restore`: reads one, and checks all of it
- `checks`: the checks of what a document says
"""
