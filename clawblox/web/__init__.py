"""Web pages of runs and experiments: ``clawblox app``, and the same pages as files.

A page is a pure function: the site and an address go in, parts of HTML come out. Only ``app`` and
``gate`` know a web framework.

- ``site``: the runs and experiments below a directory, found again and again at little cost.
- ``page``: what a page is, and the static files that it needs; ``routes``: which page is at which
  address.
- ``page``: what a page is.
- ``routes``: which page is at which address.
- ``pages``: the pages, a module each.
- ``pieces``: what several pages share.
- ``app``: the server.
- ``gate``: what a request must have before any page sees it.
- ``static``, ``static_files``: the style sheet, the script and the icon.
- ``files``, ``search``: files below a directory, in windows and in slices of a search.
- ``page``: what a page is; ``routes``: which page is at which address.
- ``pages``: the pages, a module each; ``pieces``: what several pages share.
- ``frames``: the worlds of recordings: renderers in frames of their own, and viewers.
- ``observed``: what agents saw, as a tree at a moment, and as numbers over time.
- ``app``: the server; ``gate``: what a request must have before any page sees it.
- ``files``: files below a directory, in windows and in slices of a search.
- ``workspaces``, ``text_diff``: the workspaces of agents in archives, and how they differ.
- ``axis``: one axis of time for all that a page shows; ``axis_shapes``: its strip.
- ``descent``: the lives on that axis, with their recordings.
- ``first_differences``: where two branches first act otherwise, and first see something else.
- ``run_history``, ``origins``: what manifests tell of a run, and which saves runs began from.
- ``saved_worlds``: the world documents of saves, and how they differ.
- ``subjects``: what can be compared; ``first_calls``: where agents part by their tool calls.
- ``static_files``: the style sheet and the script.
- ``run_history``: what manifests tell of runs, and which save came from where.
- ``run_logs``: the logs that may be shown.
- ``shared_address``: addresses to send.
- ``static``, ``static_files``: the style sheet, the script and the icon.
- ``files``, ``search``: files below a directory, in windows and in slices of a search.
- ``saved``: what saves hold, and how it differs: documents of worlds, workspaces of agents.
- ``subjects``: what can be compared, and where agents part by their tool calls.
- ``agent_log``: what the files of an agent and its run tell; ``agent_steps``: its steps.
- ``bundle``: the pages as files; ``agent_file``: the steps of an agent as one file.
- ``outgoing``: names and secrets that pages for others must not have.
- ``shared_address``: addresses to send, and the page of choice where one leads to several places.
- ``static``: the style sheet, the scripts and the icon.
"""
