"""Rows that outlive a world: its data stores, on SQLite or Postgres.

- ``store``: what a database is asked, and what it answers
- ``statements``: the SQL that answers a request
- ``sqlite``, ``postgres``: the two databases
- ``worker``: the thread that talks to a database, one transaction for a tick
- ``settings``: which database a world uses, and the id under which it stores its rows

Rows are never part of a snapshot. `services.data_stores` lends all of this to scripts.
"""
