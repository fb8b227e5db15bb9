"""The public API: ``AsyncWorld``, and ``World`` for scripts.

- ``async_world``: the API.
- ``sync_world``: the same without ``await``.
- ``portal``: the event loop in a thread behind it.
- ``properties``: what is known of a world without a call.
- ``fleet``: the instances of an open world, and what serves them.
- ``save``: one save, many, and autosave.
- ``control_handlers``: what other processes can ask of an open world.
- ``access``: how agents join and leave.
"""
