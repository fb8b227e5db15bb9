"""What a person or a program can tell clawblox, checked where it is said.

- ``world_toml``: reading ``world.toml``.
- ``schema``: its keys and their types.
- ``agent_routes``: which routes of a world its agents can be given.
- ``options``: every option of a start, by its name.
- ``download``: worlds in GitHub repositories.
- ``home``: where a user's own files are.
- ``agent_arguments``: agents, or their directories by name.
- ``arguments``: checks of arguments, and the complaint that names the argument.
"""
