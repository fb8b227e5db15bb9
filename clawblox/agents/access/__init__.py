"""The access of one agent to its world: an address of its own, where only its policy is served.

- ``request``: strict parsing of what it asks.
- ``grant``: what a world gives an agent, and what the agent may ask.
- ``proxy``: passing requests on, and nothing else.
- ``agent_access``: the agent's address, kept over resumes, and what serves there.
"""
