"""The public API: ``AsyncWorld``, and ``World`` for scripts.

- ``async_world``: the API, and its calls for many instances.
- ``instance_calls``: its calls for one instance, and the facts of an instance with verbs.
- ``open_world``: the block that opens the fleet, and the calls that concern all of it.
- ``sources``: the source files of a world.
- ``input_examples``: the inputs that the documentation of a world shows.
- ``sync_world``: the same without ``await``, and ``AgentClient``.
- ``started``: facts of an instance, bound to the object whose calls its verbs use.
- ``agent_client``: an agent that has joined an instance.
- ``properties``: the metadata of a world, available without a call.
- ``fleet``: the instances of an open world, and what serves them.
- ``handle``: one instance, its facts and what can be done to it.
- ``known_instances``: the instances of a fleet by name, and the names that starts reserve.
- ``resume``: which instances are brought back, and from what.
- ``starts``: the starts of one batch, and the run directories that are cleared before.
- ``restart``: restarts on request.
- ``save``: one save, many, and autosave.
- ``archives``: starts from archives of world and agents, and checkpoints into them.
- ``control_handlers``: the requests that other processes can send to an open world.
- ``control_sockets``: the sockets for these requests.
- ``access``: how agents join and leave.
- ``rosters``: who joined an instance with which session.
- ``players``: the sessions of players in the save of a restored instance.
- ``kept_sessions``: the sessions that ``clawblox act`` keeps between its calls.
- ``settling``: lets agents join again whose sessions a restore has lost.
- ``places``: an instance as the client of an agent reaches it, joins, and grants of access.
- ``recorded``: an instance of another process as the client of an agent reaches it.
"""
