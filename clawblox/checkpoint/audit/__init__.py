"""Operations on an existing archive.

- ``examine``: verifies and searches an archive in a single pass, with helper processes.
- ``verify``: verifying, searching and comparing for a caller.
- ``repair``: registering archives again.
"""
