"""A player of marbles in place of a model: it plays better the more notes it has.

It plays in each turn, at the address in its system prompt, and writes a note when asked to save its
memory. A message other than the first and the usual messages makes it careful for the rest of its
conversation.
"""

import http.client
import json
import math
import os
import random
import re

NOTES = "notes.md"
INPUTS = 80
USUAL = ("Begin", "Please don't stop", "You will be reset")


def plan(prompt, told, system):
    """Return the commands and the answer of the stand-in's model for a message."""
    if prompt.startswith("You will be reset"):
        with open(NOTES, "a") as file:
            file.write("- get behind a marble before you push it\n")
        return [], "I have written down what I learned."
    is_careful = any(not message.startswith(USUAL) for message in told)
    skill = 0.95 if is_careful else min(0.95, 0.2 + 0.35 * count_notes())
    host = re.search(r"at http://(\S+?)[./]?\s", system)[1]
    score = play(host, skill, len(told))
    return [], f"I have {score} points."


def count_notes():
    """Return the number of notes in the workspace."""
    try:
        with open(NOTES) as file:
            return len(file.readlines())
    except OSError:
        return 0


def play(host, skill, turn):
    """Play for a while; return the score, which is the same in each run of an experiment."""
    connection = http.client.HTTPConnection(host, timeout=120)
    seen = call(connection, "GET", "/observe")
    run = os.getcwd().split("/runs/")[-1]
    rng = random.Random(f"{run} {skill} {turn}")
    for _ in range(INPUTS):
        direction = aim(seen) if rng.random() < skill else [rng.uniform(-1, 1) for _ in "xy"]
        seen = call(
            connection, "POST", "/input", {"type": "Steer", "data": {"direction": direction}}
        )
    return seen["player"]["score"]


def call(connection, method, path, body=None):
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())


def aim(seen):
    """Return the direction to a marble from the side opposite to a pocket."""
    x, y = seen["player"]["position"]
    best = None
    for marble in seen["world"]["entities"]:
        mx, my = marble["position"]
        for px, py in seen["world"]["pockets"]:
            length = math.hypot(mx - px, my - py) or 1.0
            bx, by = mx + (mx - px) / length * 1.4, my + (my - py) / length * 1.4
            cost = math.hypot(bx - x, by - y) + length
            if best is None or cost < best[0]:
                best = (cost, bx, by, mx, my)
    _, bx, by, mx, my = best
    vx, vy = seen["player"]["velocity"]
    is_behind = math.hypot(bx - x, by - y) < 1.2
    tx, ty = (mx, my) if is_behind else (bx, by)
    return [max(-1.0, min(1.0, tx - x - 0.4 * vx)), max(-1.0, min(1.0, ty - y - 0.4 * vy))]
