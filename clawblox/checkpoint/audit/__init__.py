"""What can be done with an archive that exists.

- ``examine``: verifies and searches an archive in a single pass, with helper processes.
- ``verify``: verifying, searching and comparing for a caller.
- ``repair``: registering archives again.
"""
