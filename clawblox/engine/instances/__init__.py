"""The data model: instances in a tree, as scripts see them.

- ``model``: all instances of a world, how they are made, moved, copied and destroyed.
- ``instance``: one instance.
- ``library``: the global ``Instance``.
- ``members``: what every instance can do.
- ``classes``: the classes, as data.
- ``spec``: what a class is, and the table of all classes.
- ``kinds``: what may be assigned to a property.
- ``attributes``: the values of attributes.
- ``tags``: which instances have which tags.
- ``codec``: values in a snapshot.
- ``document``: the tree in a snapshot.
"""
