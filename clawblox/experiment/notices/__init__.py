"""Tells a command or an address of the plan that an experiment is paused, has failed or is done.

- ``book``: which events are due, decided from the lines of the journal. Pure.
- ``delivery``: hands a notice to a command or an address, within a time limit.
- ``notifier``: records each notice in the journal, and then delivers it, once.
"""
