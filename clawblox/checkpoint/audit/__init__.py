"""Operations on existing archives.

- ``examine``: verifies and searches an archive in a single pass, with helper processes.
- ``verify``: the public functions that verify, search and compare archives.
- ``repair``: registers archives again.
"""
