"""One agent's access to its world: an address that serves only the requests in its policy.

- ``request``: strict parsing of the agent's requests.
- ``grant``: the access that a world gives an agent, and the allowed routes.
- ``proxy``: forwarding allowed requests, and refusing all others.
- ``agent_access``: the agent's address, kept across resumes, and its server.
"""
