"""The data model: instances in a tree, as scripts see them.

- ``model``: all instances of a world, how they are made, moved, copied and destroyed.
- ``instance``: one instance.
- ``members``: what every instance can do.
- ``classes``: the classes, as data.
- ``spec``: what a class is, and the table of all classes.
- ``kinds``: what may be assigned to a property.
- ``attributes``: the values of attributes, and numbers as JSON shows them.
- ``tags``: which instances have which tags.
- ``document``: the tree and its values in a snapshot.
"""
