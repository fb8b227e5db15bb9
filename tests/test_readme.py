"""The examples of the pages run unchanged, repeatedly, and print the shown output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from clawblox import Plan
from docs import examples

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / "README.md", ROOT / "benchmarks" / "README.md"),
    *sorted((ROOT / "docs").glob("*.md")),
]
TIMEOUT_S = 60
BOT = (
    "clawblox run examples/marbles --agent command"
    """ --agent-command '{"start": ["examples/bot.py", "{prompt}"]}' --max-turns 1\n"""
)


@pytest.mark.thorough
@pytest.mark.parametrize("page", examples.PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_print_the_shown_output(page: Path, tmp_path: Path) -> None:
    shown = examples.find_examples(page)
    for example, printed in zip(shown, examples.run_page(page, tmp_path), strict=True):
        assert printed.strip(), example.code
        if example.output:
            again = f"run python -m docs.examples\n{example.code}\n{printed}"
            assert examples.is_alike(example.output, printed), again
            given = examples.shown_addresses(printed)
            assert sorted(examples.shown_addresses(example.output)) == sorted(given), again


@pytest.mark.thorough
def test_the_examples_of_the_readme_can_be_run_repeatedly(tmp_path: Path) -> None:
    shown = examples.find_examples(ROOT / "README.md")
    for _ in range(2):
        assert all(output.strip() for output in examples.run_examples(shown, tmp_path))


def test_every_block_of_the_readme_is_run_as_an_example_except_known_blocks() -> None:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```(?:bash|python)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    run = [example.code for example in examples.find_examples(ROOT / "README.md")]
    assert [block for block in blocks if block not in run] == [
        "clawblox run examples/marbles --agent claude --max-turns 20\n",
        BOT,
        "pip install '.[server,check]' && clawblox check examples/marbles restore\n",
        "python3 -m venv .venv && . .venv/bin/activate && pip install -e '.[test]' && pytest\n",
    ]


def test_the_program_without_a_key_acts_in_its_world(tmp_path: Path) -> None:
    run = subprocess.run(
        [
            "/bin/sh",
            "-c",
            BOT.replace("run examples", f"run --port 0 --run-dir {tmp_path} examples"),
        ],
        cwd=ROOT,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert run.returncode == 0, run.stderr
    assert "5.0 s, " in (tmp_path / "agents" / "Eko" / "logs" / "agent.log").read_text()


def test_the_readme_is_short_and_so_is_the_changelog() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 60


def test_the_plan_of_the_readme_is_valid_and_short() -> None:
    (text,) = re.findall(
        r"^```toml\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert [chain.name for chain in Plan.loads(text).chains()][:2] == ["fable-r1", "opus-r1"]
    assert len(text.splitlines()) <= 16


def test_outputs_are_compared_without_numbers_and_order() -> None:
    shown = "w000 ready 12 0.3s\nsaved w001-20261122T055840Z-53104c.json"
    assert examples.is_alike(shown, "saved w001-20271122T055841Z-abcdef.json\nw000  ready 7  1s\n")
    assert not examples.is_alike(shown, shown.replace("ready", "failed"))
    assert not examples.is_alike(shown, shown + "\nmore")


def test_an_example_that_fails_or_prints_nothing_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for code in ("echo no; exit 1", "true"):
        page.write_text(f"```bash\n{code}\n```\n\n```text\nno\n```\n")
        with pytest.raises(RuntimeError, match="exit status"):
            examples.run_examples(examples.find_examples(page), tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_shell_examples_can_be_copied(page: Path) -> None:
    text = page.read_text()
    assert "```console" not in text
    assert not re.search(r"^\s*\$ ", text, re.MULTILINE)
    for block in re.findall(r"```(?:bash|sh)\n(.*?)```", text, re.DOTALL):
        subprocess.run(["/bin/sh", "-n", "-c", block], check=True, timeout=TIMEOUT_S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
