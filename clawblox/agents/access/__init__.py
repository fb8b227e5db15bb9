"""The access of one agent to its world: an address of its own, where only its policy is served.

- ``request``: strict parsing of its requests.
- ``grant``: the access that a world gives an agent, and the allowed routes.
- ``proxy``: passing requests on, and nothing else.
- ``agent_access``: the agent's address, kept over resumes, and its server.
"""
