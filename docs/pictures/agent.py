"""Draws ``agent.svg``: one agent, what supervises it, and what it can reach.

python -m docs.pictures.agent
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from docs.pictures.concept import draw_box
from docs.pictures.svg import Canvas

__all__ = ["PICTURE", "draw"]

PICTURE: Final = Path(__file__).with_name("agent.svg")


def draw() -> Canvas:
    """Return the picture."""
    canvas = Canvas(
        760,
        330,
        "An agent's program runs in a sandbox with its workspace and a private home. It reaches "
        "the world through a proxy that holds its session; a task reads the log that it writes.",
    )
    draw_box(canvas, 8, 40, 168, 96, "first", "Agent", _AGENT)
    draw_box(
        canvas, 8, 172, 168, 66, "muted", "guard", ["ends the program if the", "orchestrator dies"]
    )
    corners = ((272, 22), (488, 22), (488, 238), (272, 238), (272, 22))
    canvas.path(*corners, colour="muted", dashed=True)
    canvas.text(380, 14, "sandbox", anchor="middle", colour="muted", size=12)
    draw_box(canvas, 288, 40, 184, 78, "third", "program", _PROGRAM)
    draw_box(canvas, 288, 136, 184, 84, "third", "workspace, home", _HOME)
    draw_box(canvas, 584, 40, 168, 78, "first", "proxy", _PROXY)
    draw_box(canvas, 584, 160, 168, 60, "fourth", "world", ["one instance"])
    canvas.path((176, 70), (286, 70), colour="first", arrow=True)
    canvas.text(224, 62, "messages", anchor="middle", colour="muted", size=12)
    canvas.path((288, 102), (178, 102), colour="second", arrow=True)
    canvas.text(224, 118, "agent.log", anchor="middle", colour="muted", size=12)
    canvas.path((472, 78), (582, 78), colour="third", arrow=True)
    canvas.text(536, 70, "http://mesa", anchor="middle", colour="muted", size=12)
    canvas.path((668, 118), (668, 158), colour="first", arrow=True)
    canvas.text(660, 144, "X-Session", anchor="end", colour="muted", size=12)
    draw_box(canvas, 8, 262, 744, 60, "second", "agent directory", [_FILES])
    return canvas


_AGENT: Final = ["owns the program:", "start, messages, events,", "budget, restarts, stop"]
_PROGRAM: Final = ["claude, codex, kimi, …", "continued by its conversation id"]
_HOME: Final = ["its own files; the state of", "the program, and none of", "your credentials"]
_PROXY: Final = ["what agents may do,", "with this agent's session"]
_FILES: Final = (
    "workspace · session · home · logs/agent.log · events.jsonl · usage.json · world_session.txt"
)


if __name__ == "__main__":
    draw().write(PICTURE)
