"""An experiment as tables: rows, results and status, and the files of each chain.

- ``rows``, ``results``: generations as rows, and their tables.
- ``flat_rows``, ``groups``, ``estimates``, ``text_tables``: columns, groups of rows with their
  estimates, branches compared with their controls, and all of it as text.
- ``status``: the status of an experiment at one moment.
- ``lead_time``: how long before its end a batch job needs the signal that pauses it.
- ``chain_files``: the table of a chain's generations, and the pointer to its latest archive.
- ``derived``: writes these files again after the lines that change them.
"""
