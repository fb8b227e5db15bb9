"""The public API: ``AsyncWorld``, and ``World`` for scripts.

- ``async_world``: the API.
- ``sync_world``: the same without ``await``.
- ``portal``: the event loop in a thread behind it.
- ``properties``: what is known of a world without a call.
- ``fleet``: the instances of an open world, and what serves them.
- ``starts``: the starts of one batch.
- ``save``: one save, many, and autosave.
- ``control_handlers``: what other processes can ask of an open world.
- ``control_sockets``: the sockets through which they ask.
- ``access``: how agents join and leave.
"""
