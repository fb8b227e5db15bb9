"""The history of an experiment: its journal, the state that follows from it, and what comes next.

- ``lines``, ``facts``, ``journal``: the lines of the journal, their members, and the file.
- ``checkpoints``: checkpoints, and branches that begin at them, as values.
- ``state``, ``machine``: what the lines say about an experiment, and what a chain does next. Pure.
- ``scores``: the scores of a generation, merged by name from all lines that have some. Pure.
- ``recorder``: writes lines and keeps the state up to date.
"""
