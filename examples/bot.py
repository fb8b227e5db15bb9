#!/usr/bin/env python3
r"""An agent without a language model: it steers a marble at random.

clawblox run examples/marbles --agent command --max-turns 1 \
    --agent-command '{"start": ["examples/bot.py", "{prompt}"]}'
"""

from __future__ import annotations

import json
import os
import random
import urllib.request
from typing import Any, cast

URL = os.environ["CLAWBLOX_WORLD_URL"]
"""The address at which the agent acts; it needs no session or token."""


def act(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Send an input and return the observation after it."""
    body = json.dumps({"type": kind, "data": data}).encode()
    request = urllib.request.Request(f"{URL}/input", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return cast("dict[str, Any]", json.load(answer))


for _ in range(20):
    seen = act("Steer", {"direction": [random.uniform(-1, 1), random.uniform(-1, 1)]})
    print(seen["time"], "s,", seen["player"]["score"], "points", flush=True)
