"""Parts and physics: applies changes by scripts to bodies, and motion of bodies to parts.

- ``parts``: `Parts`, the bodies of parts, the phases of a tick, and touches
- ``syncing``: applies the changes of scripts to bodies
- ``poses``: position, rotation and box of a part, and whether boxes overlap
- ``part_members``: the methods of parts, attachments and models
- ``pivots``: models that move or scale as a whole, and their bounding boxes
- ``welds``: parts that are fixed to others
- ``movers``: forces that instances exert on parts
- ``searches``: the spatial queries of ``Workspace``
- ``reach``: the parts near a player
- ``ground``: bodies for ``Terrain``
"""
