"""What of an agent travels, read from directories that change meanwhile.

- ``plan``: workspaces and conversations of all agents.
- ``tree``: walking through directory descriptors.
- ``policy``: what never travels.
- ``policy_names``: its names, as data.
- ``sessions``: the conversations of each program.
"""
