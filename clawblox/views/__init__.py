"""Turns values of runs into text and pictures.

No module here prints, contacts a world or imports a web framework.

- ``board``: the live table of a run, laid out for a terminal.
- ``rows``: instances and agents as the rows of tables, and how a run ended.
- ``experiments``: the live table of an experiment, its status and its end; a table of several.
- ``experiment_generation``: one generation of an experiment.
- ``experiment_plan``, ``experiment_fork``: previews of a plan and a fork.
- ``steering``: the selection, filter and pane of a live table, controlled by keys.
- ``event_lines``: events as lines.
- ``agent_words``: turns and steps of an agent in words; ``agent_strip``: its turns over time.
- ``descent``: the lives from the first start to the last moment of an instance.
- ``axis``: a time axis for these lives; ``axis_svg``: its strip.
- ``experiment_events``: events of an experiment as lines.
- ``lineage_layout``: the layout and the words of the picture of a lineage.
- ``lineage_svg``, ``lineage_text``: a lineage as a picture, and as text.
- ``score_svg``: a score over the generations of an experiment, as a picture.
- ``html``: HTML and SVG with escaping by default, and the style sheets in ``styles``.
- ``svg``: pictures and their elements.
- ``archives``: archives and their members.
- ``observations``: observations, differences between two, and paths into them.
- ``check_report``, ``check_page``, ``check_junit``: the report of checks of a world, as text, as a
  web page, and as JUnit XML.
- ``recordings``: recordings, and the state of a world at a recorded moment.
- ``verified_runs``: the results of verified replays, as lines and as a table.
- ``formatting``: durations, sizes, exits, paths.
"""
