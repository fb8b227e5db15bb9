"""The data model: instances in a tree, as scripts see them.

- ``instance``: an instance, and `DataModel`, the registry of all instances of a world.
- ``tree_changes``: how instances are moved, copied, destroyed and tagged.
- ``members``: the members that all instances have.
- ``containers``: the containers that an instance has as soon as something asks for them.
- ``classes``, ``play_classes``: the classes, as data.
- ``looks``, ``data_classes``: members and classes that are kept while nothing acts on them, and the
  classes that worlds do not have on purpose.
- ``spec``: a class, and the table of all classes.
- ``kinds``: the checks of assigned values.
- ``attributes``: the values of attributes, and numbers as JSON shows them.
- ``tree_document``: the tree and its values in a snapshot.
"""
