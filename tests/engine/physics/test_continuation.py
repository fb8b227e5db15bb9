import json
import subprocess
import sys

import pytest

from clawblox.engine.physics import space_document

from . import scenes

AFTER = 180


def continue_elsewhere(document, seed, first, last):
    answer = subprocess.run(
        [sys.executable, scenes.__file__, str(seed), str(first), str(last)],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(answer.stdout)


@pytest.mark.parametrize(
    "seed",
    [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 22))],
)
def test_a_space_goes_on_exactly_in_a_new_process(seed):
    saved_at = 20 + seed * 37 % 100
    space = scenes.build(seed)
    scenes.go_on(space, seed, 0, saved_at)
    document = space_document(space)
    here = scenes.go_on(space, seed, saved_at, saved_at + AFTER)
    assert continue_elsewhere(document, seed, saved_at, saved_at + AFTER) == here
