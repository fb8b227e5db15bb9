"""Parts and physics: what scripts write reaches bodies, and what bodies do reaches scripts.

- ``parts``: `Parts`, which bodies follow which parts, and the phases of a tick
- ``syncing``: from what scripts wrote to bodies
- ``poses``: position and rotation of a part
- ``members``: what scripts call on parts, attachments and models
- ``pivots``: models that move as a whole, and the box around them
- ``placing``: models that come to a free place
- ``welds``: parts that are fixed to others
- ``touches``: ``Touched`` and ``TouchEnded``
- ``movers``: forces that instances put on parts
- ``searches``: what ``Workspace`` finds
- ``boxes``: whether oriented boxes overlap
- ``ground``: bodies for ``Terrain``
"""
