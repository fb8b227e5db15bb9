"""The history of an experiment: its journal, the state derived from it, and the next steps.

- ``lines``, ``facts``, ``journal``: the lines of the journal, their members, and the file.
- ``checkpoints``: checkpoints and their branches, as values.
- ``state``: the state of an experiment, computed from its lines. Pure.
- ``plans``: the plans, the plan in force for a chain and a generation, and the chains. Pure.
- ``machine``, ``orders``: the next step of a chain, and the orders for its attempts. Pure.
- ``scores``: the scores of a generation, merged by name from its lines. Pure.
- ``recorder``: writes lines and keeps the state up to date.
"""
