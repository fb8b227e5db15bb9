"""Web pages of runs and experiments: ``clawblox app``, and the same pages as files.

A page is a pure function from the site and an address to parts of HTML. Only ``app`` and ``gate``
use a web framework.

- ``site``: the runs and experiments below a directory, refreshed at little cost.
- ``page``: the structure of a page, and the static files that every page needs.
- ``routes``: maps addresses to pages.
- ``pages``: the pages, one module each.
- ``pieces``: pieces that several pages share.
- ``app``: the server; ``gate``: the access checks of requests.
- ``static``: the style sheet, the scripts and the icon.
- ``files``: files below a directory, in windows and in slices of a search.
- ``shared_address``: addresses to send.
- ``recordings``: recordings along a time axis, with the inputs of agents and numbers over time.
- ``frames``: renderers in separate frames, and viewers that a person has started.
- ``frame_file``: the engine's page in one file, and files of states, for frames without a server.
- ``run_history``: facts from the manifests of runs: saves, their origins, comparable runs.
- ``saved``: the contents of saves: documents of worlds, workspaces of agents, and differences.
- ``first_differences``: the first differences between two branches.
- ``world_calls``: requests of agents to their world, and the changes in the answers.
- ``agent_log``: the log of an agent with its times; ``agent_steps``: its steps, on a page or in a
file.
- ``bundle``: the pages as files.
- ``outgoing``: removes names and secrets from pages that leave this machine.
"""
