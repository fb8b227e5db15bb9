"""Agents: the programs that act in worlds, each supervised like a world.

Nothing here knows worlds, instances or archives. Archives use ``programs``, and nothing else.

- ``programs``: what each program is and where it keeps things.
- ``layout``: where things are in an agent's directory.
- ``values``: events, usage and results.
- ``sandbox``: isolates a program from this machine.
- ``drivers``: how each program is started, continued and understood.
- ``status``: what other processes can learn of an agent.
- ``control``: what they can ask of an agent that runs.
- ``window``: the tmux window of an agent.
- ``screen``: the program in it.
- ``narration``: what an agent does, as lines for people.
- ``usage``: what an agent has used, as one count, and budgets.
- ``prompts``: texts that agents are given.
- ``environment``: the environment of an agent's program.
- ``options``: the arguments of an agent's constructor.
- ``events``: the stream of events, and the file that keeps the important ones.
- ``running``: the one task that owns an agent.
- ``async_agent``: AsyncAgent.
- ``sync_agent``: Agent, the same without ``await``.
- ``access``: the access of an agent to its world: the capability proxy.
- ``trajectory``: an agent's trajectory in an interchange format.
"""
