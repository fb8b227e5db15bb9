"""Secrets of instances and their pieces are masked in all texts of a report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.conformance import check_world
from clawblox.conformance.exchange import compare_bodies
from clawblox.conformance.masking import SESSION, SecretMask
from tests.conformance.reports import make_result
from tests.support.provable import make_provable_world
from tests.support.sampling import usually
from tests.worlds.defects import CLOCKS

TOKEN = "3vKx_Yq0pT5sWb-ZnR8dLmJ2cGhU7fAeO4iQ6tB1yXw"
OPERATOR = "WORLD_OPERATOR_TOKEN"


def make_mask(token: str = TOKEN) -> SecretMask:
    mask = SecretMask()
    mask.add(OPERATOR, token)
    return mask


@given(st.text(max_size=9), st.text(max_size=9), st.integers(0, 37), st.integers(6, 43))
def test_secrets_and_their_pieces_in_excerpts_are_masked(
    before: str, after: str, start: int, size: int
) -> None:
    piece = TOKEN[start : start + size]
    assert make_mask().mask(f" {before} {piece} {after} ") == f" {before} ${OPERATOR} {after} "


def test_adjacent_and_repeated_secrets_are_masked_completely() -> None:
    masked = make_mask().mask(f"{TOKEN}{TOKEN} or {TOKEN}")
    assert masked == f"${OPERATOR}${OPERATOR} or ${OPERATOR}"


def test_excerpt_that_starts_inside_a_token_is_masked() -> None:
    other = TOKEN[:20] + TOKEN[:19:-1]
    found = compare_bodies(f"token {TOKEN}".encode(), f"token {other}".encode())
    assert found is not None
    assert TOKEN[20:] in found.before, "the excerpt begins in the middle"
    masked = make_mask().mask_value([found.before])
    assert not any(TOKEN[at : at + 6] in masked[0] for at in range(len(TOKEN) - 5))


def test_every_text_of_a_result_is_masked() -> None:
    value = {TOKEN: [{"a": f"x{TOKEN}"}, 1, None, True]}
    result = make_result(
        "restore.trace",
        "failed",
        evidence=f"seen {TOKEN}",
        request=f"curl -i 'http://127.0.0.1:1/snapshot?token={TOKEN}'",
        path=f"body.{TOKEN}",
        expected=value,
        got=TOKEN,
    )
    shown = json.dumps(make_mask().mask_result(result).document())
    assert TOKEN not in shown
    assert shown.count(f"${OPERATOR}") == 6


def test_sessions_are_masked_unless_they_are_as_short_as_words() -> None:
    mask = SecretMask()
    mask.add(SESSION, "player")
    mask.add(SESSION, "6f1f0f0e5f3d4c0b9a7e2d1c8b5a4f3e")
    text = "player 6f1f0f0e5f3d4c0b9a7e2d1c8b5a4f3e acts"
    assert mask.mask(text) == "player $SESSION acts"


@pytest.mark.anyio
@pytest.mark.parametrize("clock", usually(CLOCKS, "lockstep"))
async def test_token_in_answers_of_a_world_is_masked_in_the_report(
    tmp_path: Path, clock: str
) -> None:
    world = make_provable_world(tmp_path, clock=clock, defect="observation-token")
    report = await check_world(world, ["restore.trace", "invisible.operator", "gate"], seed=5)
    results = {result.id: result for result in report.checks}
    assert results["restore.trace"].status == "failed"
    assert results["restore.trace"].got == f"${OPERATOR}"
    assert results["invisible.operator"].status == "failed"
    assert re.findall(r"[\w-]{43,}", json.dumps(report.document())) == []


@pytest.mark.anyio
async def test_secret_in_the_log_of_a_world_is_masked_in_the_report(
    tmp_path: Path,
) -> None:
    (tmp_path / "world.py").write_text(
        "import os\n"
        'raise SystemExit([v for k, v in os.environ.items() if k.endswith("_API_KEY")])\n'
    )
    (tmp_path / "world.toml").write_text('name = "it"\n[run]\ncommand = ["{python}", "world.py"]\n')
    report = await check_world(tmp_path, ["contract.ready"], seed=5)
    assert report.verdict.grade == "not_shown"
    assert re.search(r"\$\w+_API_KEY", report.verdict.sentence)
    assert re.search(r"\$\w+_API_KEY", report.obstacle)
    assert re.findall(r"[0-9a-f]{32}", json.dumps(report.document())) == []
