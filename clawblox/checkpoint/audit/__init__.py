"""What can be done with an archive that exists.

- ``examine``: the one pass that verifies it and searches it for secrets.
- ``examiner``: the small process that helps with a large one.
- ``verify``: verifying and scanning for a caller.
- ``compare``: what one archive has that another lacks.
- ``repair``: registering archives again.
"""
