"""The public API: ``AsyncWorld``, and ``World`` for scripts.

- ``async_world``: the API.
- ``sync_world``: the same without ``await``.
- ``portal``: the thread with the event loop behind it.
- ``properties``: what a world says of itself without a call.
- ``fleet``: the instances of an open world, and what serves them.
- ``starts``: the starts of one batch.
- ``restart``: restarts that somebody asked for.
- ``save``: one save, many, and autosave.
- ``control_handlers``: the requests that other processes can send to an open world.
- ``control_sockets``: the sockets for these requests.
- ``clients``: the HTTP clients of the instances.
- ``access``: how agents join and leave.
"""
