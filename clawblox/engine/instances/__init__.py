"""The data model: instances in a tree, as scripts see them.

- ``instance``: one instance, and `DataModel`, the registry of all instances of a world.
- ``tree_changes``: how instances are moved, copied, destroyed and tagged.
- ``members``: what every instance can do.
- ``classes``: the classes, as data.
- ``spec``: what a class is, and the table of all classes.
- ``kinds``: what may be assigned to a property.
- ``attributes``: the values of attributes, and numbers as JSON shows them.
- ``tree_document``: the tree and its values in a snapshot.
"""
