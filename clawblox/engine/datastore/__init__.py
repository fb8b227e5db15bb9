"""Rows that outlive a world: its data stores, on SQLite or Postgres.

- ``store``: requests to a database, its answers, and the SQL between them
- ``sqlite``, ``postgres``: the two databases
- ``worker``: the thread that uses a database, with one transaction per tick

Rows are never part of a snapshot. `services.data_stores` is the interface for scripts.
"""
