"""The tokens of worlds are available to the script, but never on disk or on a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from anyio.to_thread import run_sync

from clawblox import AsyncWorld
from clawblox.protocol import SECRET_ENV
from tests.support.crowd import past
from tests.support.files import read_all
from tests.support.worlds import make_world

pytestmark = pytest.mark.anyio


async def test_files_results_events_and_output_of_a_run_contain_no_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, run = make_world(tmp_path), tmp_path / "run"
    refused = tmp_path / "of-another-world.json"
    refused.write_text('{"format": "none"}')
    async with AsyncWorld(directory, run_dir=run) as world, world.events() as events:
        started = await world.start(record=True, name="first", restart="checkpoint")
        rocky = await world.join("Rocky")
        saved = await world.save()
        archive = await world.checkpoint(run / "checkpoints" / "gen001.ckpt")
        restarted = await started.restart()
        forks = await world.fork(saved, count=1)
        many = await world.start_many(1, resume=saved)
        with pytest.raises(Exception, match="ended while restoring") as failed:
            await world.start(name="failed", resume=refused)
        stopped = await world.stop_all()
        seen = await past(events)
    alive = [started, restarted, *forks, *many]
    tokens = {each.env[name] for each in alive for name in SECRET_ENV}
    assert len(tokens) == 2 * len(alive)
    values = [*alive, saved, archive, *stopped, *seen, rocky.access]
    texts = [str(failed.value), repr(failed.value), *map(repr, values)]
    texts += [json.dumps(attrs.asdict(value), default=str) for value in values]
    texts += capsys.readouterr()
    contents = [content for _, content in await run_sync(lambda: [*read_all(tmp_path)])]
    assert len(contents) > 10
    for token in tokens:
        assert not [text for text in texts if token in text]
        assert not [content for content in contents if token.encode() in content]
