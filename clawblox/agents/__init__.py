"""Agents: the programs that act in worlds, each supervised like a world.

Nothing here depends on worlds, instances or archives. Archives use ``programs`` only.

- ``programs``: the facts of each program, and the places of its files.
- ``layout``: the files of an agent's directory.
- ``values``: events, usage and results.
- ``sandbox``: isolates a program from this machine.
- ``drivers``: how each program is started and continued, and how its output is read.
- ``status``: the status of an agent for other processes; agents whose orchestrator has died.
- ``listing``: the runs, instances and agents of a list.
- ``control``: requests from other processes to a running agent.
- ``window``: the tmux window of an agent.
- ``screen``: the program that runs in the window.
- ``narration``: an agent's activity as lines for people.
- ``usage``: the total usage of an agent, and its budget.
- ``prompts``: the default texts for agents.
- ``options``: the arguments of an agent's constructor.
- ``events``: the stream of events, and the file that keeps the important events.
- ``running``: the task that owns an agent.
- ``async_agent``: AsyncAgent.
- ``sync_agent``: Agent, the same without ``await``.
- ``access``: an agent's access to its world: the capability proxy.
- ``trajectory``: an agent's trajectory in an interchange format.
"""
