"""Inspect's viewer on the same trajectory, in a separate virtual environment.

    INSPECT_PYTHON -P benchmarks/views_inspect.py write LOG DIRECTORY
    INSPECT_PYTHON -P benchmarks/views_inspect.py read FILE

``write`` creates an ``.eval`` file from an agent's log; ``read`` reads its sample back like the
viewer's server, and prints the seconds. Only the standard library and ``inspect_ai`` are used.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write(log: Path, directory: Path) -> None:
    """Write a sample with the messages of a log."""
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalSample,
        EvalSpec,
        write_eval_log,
    )

    sample = EvalSample(id="A", epoch=1, input="look", target="", messages=[*_messages(log)])
    spec = EvalSpec(
        created="2026-11-01T00:00:00+00:00",
        task="views",
        model="none",
        dataset=EvalDataset(),
        config=EvalConfig(),
    )
    written = EvalLog(eval=spec, status="success", samples=[sample])
    write_eval_log(written, str(directory / "views.eval"), format="eval")


def _messages(log: Path) -> Iterator[Any]:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageTool
    from inspect_ai.tool import ToolCall

    for line in log.open():
        message = json.loads(line)["message"]
        first, *rest = message["content"]
        if message["role"] == "assistant":
            calls = [
                ToolCall(id=one["id"], function="Bash", arguments=one["input"]) for one in rest
            ]
            yield ChatMessageAssistant(content=first["text"], tool_calls=calls)
        else:
            yield ChatMessageTool(content=first["content"], tool_call_id=first["tool_use_id"])


def read(file: Path) -> None:
    """Read the sample and print the seconds."""
    from inspect_ai.log import read_eval_log_sample

    begun = time.perf_counter()
    sample = read_eval_log_sample(str(file), id="A", epoch=1)
    print(json.dumps({"s": time.perf_counter() - begun, "messages": len(sample.messages)}))


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](*map(Path, sys.argv[2:]))
