"""Web pages of runs and experiments: ``clawblox app``, and the same pages as files.

A page is a pure function: the site and an address go in, parts of HTML come out. Only ``app`` and
``gate`` know a web framework.

- ``site``: the runs and experiments below a directory, found again and again at little cost.
- ``page``: what a page is, and the static files that every page needs.
- ``routes``: which page is at which address.
- ``pages``: the pages, a module each.
- ``pieces``: what several pages share.
- ``app``: the server; ``gate``: what a request must have before any page sees it.
- ``static``: the style sheet, the scripts and the icon.
- ``files``: files below a directory, in windows and in slices of a search.
- ``shared_address``: addresses to send.
- ``recordings``: recordings along an axis of time, what agents sent, and numbers over time.
- ``frames``: renderers in frames of their own, and viewers that a person has started.
- ``frame_file``: the engine's page in one file, and states, for frames without a server.
- ``run_history``: facts from the manifests of runs: saves, their origins, comparable runs.
- ``saved``: the contents of saves: documents of worlds, workspaces of agents, and how they differ.
- ``first_differences``: where two branches part.
- ``world_calls``: requests of agents to their world, and what the answers change.
- ``agent_log``: the log of an agent with its times; ``agent_steps``: its steps, in a file too.
- ``bundle``: the pages as files.
- ``outgoing``: removes names and secrets from what leaves this machine.
"""
