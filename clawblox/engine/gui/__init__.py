"""What players see on the screen: its classes, what spectators are told of it, and clicks.

- ``classes``: the classes of the GUI, as data.
- ``gui_json``: elements as JSON.
- ``clicks``: the input ``GuiClick``.
"""
