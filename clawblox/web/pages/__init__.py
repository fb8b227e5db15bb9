"""The pages, a module each: pure functions of the site and an address.

- ``runs``: running and ended runs, and usage by experiment, model and day.
- ``run``: why a run is as it is, what it cost, where it comes from, how to go on.
- ``log``: the log of an instance, and a search over all runs.
- ``agent``: why an agent is as it is, its turns over time, its steps, and its long texts.
- ``experiment``: chains, generations, money and results.
- ``reports``: what ``clawblox check`` and ``clawblox verify`` have left.
- ``save``: a save, its workspaces, and its changes.
- ``compare``: two runs or instances.
- ``lineage``: runs that began from each other's saves.
- ``replay``: a recording at a moment, and the world's own viewer.
"""
