"""Notifies a command or an address when an experiment is paused, has failed or is done.

- ``book``: decides from the lines of the journal which events are due. Pure.
- ``delivery``: delivers a notice to a command or an address, within a time limit.
- ``notifier``: records each notice in the journal, then delivers it once.
"""
