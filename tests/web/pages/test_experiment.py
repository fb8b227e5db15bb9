"""The page of an experiment: chains and generations with their reasons, money, results."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from clawblox.errors import ClawbloxError
from clawblox.experiment.history.journal import Journal
from clawblox.rundir import driver_lease
from clawblox.web.site import Site, identify
from tests.golden.test_golden_experiments import V1, V1_SCORED
from tests.web.drawing import draw, make

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    shutil.copytree(V1, tmp_path / "lab" / "exp")
    shutil.copytree(V1_SCORED, tmp_path / "lab" / "scored")
    return Site(tmp_path / "lab")


def page(site: Site, name: str = "exp", **query: str) -> str:
    return draw(site, f"experiment/{identify(name)}", **query)


def rows(text: str, part: str) -> list[str]:
    """Return the rows of a table, without markup."""
    section = re.search(rf'<section id="{part}".*?</section>', text, re.S)
    assert section is not None
    found = re.findall(r"<tr>(.*?)</tr>", section[0], re.S)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in found[1:]]


def test_first_page_links_to_every_experiment(site: Site) -> None:
    text = draw(site)
    for name in ("exp", "scored"):
        assert f'href="/experiment/{identify(name)}"' in text


def test_chain_has_a_sign_and_a_reason_for_each_generation(site: Site) -> None:
    chains = rows(page(site), "chains")
    assert [row.split()[0] for row in chains] == ["r1", "r2", "r1-f1-1", "r1-f1-2"]
    text = page(site)
    assert 'title="r1 generation 1: committed' in text
    assert "2 attempts" in text


def test_the_rows_can_be_filtered_by_state_and_by_words(site: Site) -> None:
    everything = rows(page(site), "rows")
    assert len(everything) > 4
    assert all("committed" in row for row in rows(page(site, state="committed"), "rows"))
    branches = rows(page(site, q="r1-f1-2"), "rows")
    assert branches
    assert all(row.startswith("r1-f1-2/") for row in branches)
    assert rows(page(site, q="no such words"), "rows") == []


def test_the_nodes_of_attempts_are_shown_where_there_are_any(site: Site) -> None:
    assert ">Node<" not in page(site)
    journal = site.root / "exp" / "journal.jsonl"
    host = {"node": "gpu-7", "lease_s": 30.0, "bound_s": 31.0, "machine": {}}
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        if line["type"] == "opened":
            line["data"] |= {"host": host, "differs": "libc: b, before a"}
        if line["type"] == "failed":
            line["data"]["cause"] = "node"
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = page(site)
    assert text.count(">Node<") == 2
    assert " gpu-7 " in rows(text, "chains")[0]
    assert "gpu-7, on another libc: b, before a" in rows(text, "rows")[0]
    assert "lost with gpu-7" in text


def test_an_experiment_that_another_machine_runs_names_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "driver on" not in page(site) + draw(site)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(driver_lease, "boot_id", lambda: "another boot")
        journal = Journal(site.root / "exp").__enter__()
    try:
        site._due.clear()  # looks again immediately
        assert f"driver on {os.uname().nodename}" in page(site)
        assert f"driver on {os.uname().nodename}" in draw(site)
    finally:
        journal.__exit__()


def test_scores_are_compared_by_condition(site: Site) -> None:
    text = page(site, "scored")
    assert "Results by condition" in text
    assert "<svg" in text


def test_page_of_an_unreadable_experiment_has_the_reason(site: Site) -> None:
    journal = site.root / "exp" / "journal.jsonl"
    journal.write_text(f'{{"type": "{HOSTILE}"}}\n')
    text = draw(site)
    assert HOSTILE not in text
    assert "unreadable" in text
    with pytest.raises(ClawbloxError, match=r"journal\.jsonl"):
        make(site, f"experiment/{identify('exp')}")


def test_hostile_words_of_a_plan_are_escaped(site: Site) -> None:
    plan = site.root / "exp" / "plan.toml"
    text = plan.read_text()
    name = re.search(r'name = "(.*?)"', text)
    assert name is not None
    plan.write_text(text.replace(name[0], f'name = "{HOSTILE}"', 1))
    shown = draw(site)
    assert HOSTILE not in shown
