"""The close of a world: functions bound by scripts, and the database."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawblox.engine.datastore.store import Read, Row
from clawblox.engine.runner import Backend, open_store, read_game_id
from clawblox.engine.settings import EngineSettings
from clawblox.engine.world.console import Console
from clawblox.engine.world.engine_world import EngineWorld
from clawblox.luau import run_deep

SCRIPT = """
local store = game:GetService("DataStoreService"):GetDataStore("s")
game:BindToClose(function() error("first", 0) end)
game:BindToClose(function() store:SetAsync("end", tick()) print("saved") end)
print("begun")
"""


def read_end(world: Path, port: int, game_id: str) -> object:
    store = open_store(Backend.SQLITE, world, port)
    assert store is not None
    (answer,) = store.execute(game_id, [Read("s", "end")])
    store.close()
    return answer.value if isinstance(answer, Row) else answer


def test_closing_calls_bound_functions_and_saves_their_rows(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text(SCRIPT)
    lines: list[str] = []
    store = open_store(Backend.SQLITE, tmp_path, 1)
    settings = EngineSettings(directory=tmp_path, game_id="g")
    world = EngineWorld(settings, Console(lines.append, lines.append), store=store)

    def run() -> None:
        world.begin()
        for _ in range(3):
            world.step()
        world.close()

    run_deep(run)
    assert [line for line in lines if "legacy" not in line][:2] == [
        "[Lua] begun",
        "[Lua Error] BindToClose: first",
    ]
    assert read_end(tmp_path, 1, "g") == "0.05"


@pytest.mark.thorough
def test_stopping_the_program_closes_its_world(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text(SCRIPT)
    (tmp_path / "world.toml").write_text('name = "w"\n[scripts]\nmain = "main.lua"\n')
    command = [sys.executable, "-m", "clawblox.engine", str(tmp_path), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Server running" in line:
                process.send_signal(signal.SIGTERM)
        assert process.wait() in (0, -signal.SIGTERM)
    assert read_end(tmp_path, 0, read_game_id(tmp_path)) is not None
