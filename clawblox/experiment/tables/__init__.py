"""An experiment as tables: rows, results and status, and the files of each chain.

- ``rows``, ``costs``, ``results``: generations as rows, and the tables of them.
- ``status``: the status of an experiment at one moment.
- ``chain_set``: the chains of the plan together with their branches.
- ``chain_files``: the table of a chain's generations, and the pointer to its latest archive.
"""
