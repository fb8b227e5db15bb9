"""The pages, one module each: pure functions of the site and an address.

- ``runs``: running and ended runs, and usage by experiment, model and day.
- ``run``: the state of a run and its reasons, its cost, its origin, and commands to continue.
- ``log``: the log of an instance, and a search over all runs.
- ``agent``: the state of an agent and its reason, its turns over time, its steps and long texts.
- ``experiment``: chains, generations, money and results.
- ``reports``: the reports of ``clawblox check`` and ``clawblox verify``.
- ``save``: a save, its workspaces, and its changes.
- ``compare``: two runs or instances.
- ``lineage``: runs that started from each other's saves.
- ``replay``: a recording at a moment, and the world's own viewer.
"""
