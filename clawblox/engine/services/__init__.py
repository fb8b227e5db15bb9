"""What ``game:GetService`` returns: one module for each service, and the small classes beside them.

- ``game``: ``GetService`` and ``BindToClose``.
- ``players``: who plays, kicks, idle players and bots.
- ``run_service``: ``Stepped`` and ``Heartbeat``.
- ``agent_inputs``: what agents send.
- ``remote_events``: events for spectators and agents.
- ``data_stores``: rows that outlive the world, as scripts see them.
- ``http``: JSON and unique names.
- ``physics_groups``: which parts collide with which.
- ``collection``: instances by their tags.
- ``debris``: instances with a time to live.
- ``sounds``: sounds as data.
- ``chat``: who hears a message, and ``Chatted``.
- ``terrain``, ``voxels``: the ground, and its cells.
- ``objects``: value objects and bindable events.
- ``every``: all of them, for the world.

The instance of a service keeps its state in ``extra``.
"""
