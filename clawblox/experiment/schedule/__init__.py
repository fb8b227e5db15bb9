"""Runs chains within the limits of a plan, over protocols for worlds and agents.

- ``scheduler``: a task for each chain.
- ``admission``, ``accounts``, ``spending``: the limits: slots, providers' accounts, money, costs.
- ``generation``, ``pauses``: the steps of one attempt, and requests to close or pause it.
- ``ports``: protocols for attempts and their backends.
- ``callbacks``, ``timing``: the hooks of an attempt; its clock and message waits.
- ``score_functions``: imports score functions by name.
"""
