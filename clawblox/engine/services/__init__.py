"""The services that ``game:GetService`` returns, one module each, and their small classes.

- ``game``: ``GetService``, ``BindToClose`` and ``Debris``.
- ``players``: the players, kicks, idle players and bots.
- ``agent_inputs``: the inputs of agents.
- ``prompts``: click detectors and proximity prompts.
- ``remote_events``: events for spectators and agents.
- ``remote_functions``: requests between scripts and agents.
- ``absent``: services for features that worlds lack: purchases, badges, analytics.
- ``data_stores``: rows that outlive the world, as scripts see them.
- ``messaging``: messages between the scripts of a world, by topic.
- ``physics_groups``: collision groups of parts.
- ``lighting``: the clock of ``Lighting``, and visual methods without effect.
- ``sounds``: sounds as data.
- ``speech``: the audience of a message, and ``Chatted``.
- ``teams``: teams and their players.
- ``terrain``, ``voxels``: the ground, and its cells.
- ``every``: all services of a world, and small services: ``RunService``, ``HttpService``,
  ``CollectionService``, value objects, bindable events and functions.
"""
