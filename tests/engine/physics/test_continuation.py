import json
import subprocess
import sys

import pytest

from clawblox.engine.physics.saved import space_document

from . import scenes

AFTER = 180


def continue_elsewhere(document, *numbers):
    answer = subprocess.run(
        [sys.executable, scenes.__file__, *map(str, numbers)],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(answer.stdout)


@pytest.mark.thorough  # ``parts`` does it in each run
@pytest.mark.parametrize(("seed", "every"), [(1, 30), *((seed, 1) for seed in range(2, 22))])
def test_a_space_continues_exactly_in_a_new_process(seed, every):
    saved_at = 20 + seed * 37 % 100
    space = scenes.build(seed)
    scenes.go_on(space, seed, 0, saved_at, every)
    document = space_document(space)
    here = scenes.go_on(space, seed, saved_at, saved_at + AFTER, every)
    assert continue_elsewhere(document, seed, saved_at, saved_at + AFTER, every) == here
