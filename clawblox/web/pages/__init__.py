"""The pages, a module each: pure functions of the site and an address.

- ``runs``: what runs, and what has run.
- ``experiment``: chains, generations, money and results.
- ``missing``: for an address that has no page.
"""
