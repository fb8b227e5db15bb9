"""Parts and physics: what scripts write reaches bodies, and what bodies do reaches scripts.

- ``parts``: `Parts`, which bodies follow which parts, the phases of a tick, and touches
- ``syncing``: from what scripts wrote to bodies
- ``poses``: position and rotation of a part
- ``part_members``: what scripts call on parts, attachments and models
- ``pivots``: models that move as a whole or to a free place, and the box around them
- ``welds``: parts that are fixed to others
- ``movers``: forces that instances put on parts
- ``searches``: what ``Workspace`` finds
- ``boxes``: whether oriented boxes overlap
- ``ground``: bodies for ``Terrain``
"""
