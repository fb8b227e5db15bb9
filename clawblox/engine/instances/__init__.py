"""The data model: instances in a tree, as scripts see them.

- ``instance``: an instance, and `DataModel`, the registry of all instances in a world.
- ``tree_changes``: moving, copying, destroying and tagging instances.
- ``members``: the members of all instances.
- ``containers``: containers that are created on first access.
- ``classes``, ``play_classes``: the classes, as data.
- ``looks``, ``data_classes``: members and classes that are stored without effect, and the
  classes that worlds omit on purpose.
- ``spec``: a class, and the table of all classes.
- ``kinds``: the checks of assigned values.
- ``attributes``: the values of attributes, and numbers in JSON.
- ``tree_document``: the tree and its values in a snapshot.
"""
