"""Input from people and programs, checked where it enters clawblox.

- ``world_toml``: reading ``world.toml``.
- ``toml_text``: TOML files in general, and the lines of their values.
- ``toml_words``: values, positions and advice in the words of TOML.
- ``schema``: the keys of ``world.toml`` and their types.
- ``agent_routes``: the routes of a world that agents may use.
- ``options``: all options of starts and saves, with their defaults.
- ``download``: worlds in GitHub repositories.
- ``home``: the directory for a user's own files.
- ``agent_arguments``: agents, or their directories by name.
- ``arguments``: checks of arguments, and the error that names the argument.
"""
