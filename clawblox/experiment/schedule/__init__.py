"""Runs chains within the limits of a plan, over protocols for worlds and agents.

- ``scheduler``, ``running_chain``: a task for each chain.
- ``slots``, ``accounts``, ``spending``: the limits: places, providers' accounts, money.
- ``generation``, ``pauses``: the steps of one attempt, and requests to close or pause it.
- ``ports``: what an attempt needs of its world and agents.
- ``callbacks``, ``mailbox``, ``meter``: hooks, messages and clock of an attempt.
- ``score_functions``: imports the score functions that plans and command lines name.
"""
