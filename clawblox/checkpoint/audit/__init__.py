"""What can be done with an archive that exists.

- ``examine``: the one pass that verifies it and searches it, with processes that help.
- ``verify``: verifying, searching and comparing for a caller.
- ``repair``: registering archives again.
"""
