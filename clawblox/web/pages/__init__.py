"""The pages, a module each: pure functions of the site and an address.

- ``runs``: what runs, and what has run.
- ``experiment``: chains, generations, money and results.
- ``usage``: tokens and cost by experiment, model and day.
- ``reports``: what ``clawblox check`` and ``clawblox verify`` have left.
- ``missing``: for an address that has no page.
"""
