"""The history of an experiment: its journal, the state that follows from it, and what comes next.

- ``lines``, ``facts``, ``journal``: the lines of the journal, their members, and the file.
- ``checkpoints``: checkpoints, and branches that begin at them, as values.
- ``state``: the state of an experiment, computed from its lines. Pure.
- ``plans``: the plans, the one in force for a chain and a generation, and the chains. Pure.
- ``machine``, ``orders``: what a chain does next, and the orders for its attempts. Pure.
- ``scores``: the scores of a generation, merged by name from all lines that have some. Pure.
- ``recorder``: writes lines and keeps the state up to date.
"""
