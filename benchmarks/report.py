"""Runs benchmarks, draws their plots, and writes their tables into ``benchmarks/README.md``.

    python -m benchmarks.report                      # draw and write what results/*.json say
    python -m benchmarks.report --run                # run all benchmarks first
    python -m benchmarks.report --run starts,idle    # run some of them first
    python -m benchmarks.report --run paired --before PYTHON

``paired`` compares with an earlier state installed in the virtual environment of ``--before``, and
only runs with this option.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.charts import format_number
from benchmarks.plots import case_title, draw

__all__ = ["BENCHMARKS", "MARKED", "PAGE", "RESULTS", "render_page", "write_page"]

_HERE: Final = Path(__file__).parent
PAGE: Final = _HERE / "README.md"
RESULTS: Final = _HERE / "results"

_MANY: Final = ["-m", "benchmarks.many_worlds", "--only"]
BENCHMARKS: Final[Mapping[str, Sequence[str]]] = {
    "one_world": ["-m", "benchmarks.one_world"],
    "starts": [*_MANY, "starts"],
    "snapshots": [*_MANY, "snapshots"],
    "logs": [*_MANY, "logs"],
    "idle": [*_MANY, "idle"],
    "peers": [*_MANY, "peers"],
    "checkpoints": ["-m", "benchmarks.checkpoints"],
    "secret_scan": ["-m", "benchmarks.secret_scan"],
    "optional_packages": ["-m", "benchmarks.optional_packages"],
    "agents": ["-m", "benchmarks.agents"],
    "agents_io": ["-m", "benchmarks.agents_io"],
    "experiments": ["-m", "benchmarks.experiments"],
    "cluster": ["-m", "benchmarks.cluster"],
    "luau": ["-m", "benchmarks.luau"],
    "engine": ["-m", "benchmarks.engine"],
    "floods": ["-m", "benchmarks.floods"],
    "server_kit": ["-m", "benchmarks.server_kit"],
    "views": ["-m", "benchmarks.views"],
    "soak": ["-m", "benchmarks.soak"],
    "paired": ["-m", "benchmarks.paired"],
}
"""The words after ``python`` that run each benchmark."""

MARKED: Final = re.compile(r"<!-- results: (\w+) -->\n.*?<!-- end -->", re.DOTALL)
_MOST_ROWS: Final = 14
"""Number of rows above which tables are folded."""


def run(name: str, before: str | None, fixed: str | None, *, is_quick: bool) -> bool:
    """Run a benchmark; return whether it has written its results."""
    command = [sys.executable, *BENCHMARKS[name]]
    if name == "paired":
        assert before is not None  # checked with the arguments
        command += [before, sys.executable, *(["--fixed", fixed] if fixed else [])]
    path = RESULTS / f"{name}.json"
    command += ["--json", str(path), *(["--quick"] if is_quick else [])]
    print(f"\n== {name}", flush=True)
    if subprocess.run(command, cwd=_HERE.parent, check=False).returncode != 0:
        return False
    document = {**json.loads(path.read_text()), "is_quick": is_quick}
    path.write_text(json.dumps(document, indent=2) + "\n")
    return True


def write_page() -> None:
    """Draw all plots and write all tables, from the existing results."""
    for path in sorted(RESULTS.glob("*.json")):
        draw(json.loads(path.read_text())).write(path.with_suffix(".svg"))
    PAGE.write_text(render_page(PAGE.read_text()))


def render_page(text: str) -> str:
    """Return the text of the page with the sections for the results."""
    return MARKED.sub(lambda match: _render_section(match[1]), text)


def _render_section(name: str) -> str:
    """Return the section of a benchmark, including its marks."""
    path = RESULTS / f"{name}.json"
    body = "No results yet.\n"
    if path.exists():
        body = _render(name, json.loads(path.read_text()))
    return f"<!-- results: {name} -->\n{body}<!-- end -->"


def _render(name: str, document: Mapping[str, Any]) -> str:
    quick = "\n**A quick run: it shows that the benchmark works, and measures nothing.**\n"
    where = f"{document['machine']} · {document['date']} · commit {document['commit']}"
    heads, rows = _table(document)
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    table = "\n".join(lines)
    if len(rows) > _MOST_ROWS:
        table = f"<details><summary>All {len(rows)} figures</summary>\n\n{table}\n\n</details>"
    return (
        f"![{document['benchmark']}](results/{name}.svg)\n\n{where}\n"
        f"{quick if document.get('is_quick') else ''}\n{table}\n"
    )


def _table(document: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    if "tools" in document:
        return _tools_table(document["tools"])
    if "pairs" in document:
        return _pairs_table(document["pairs"])
    if "clients" in document:
        return _clients_table(document["clients"], document["cases"])
    heads = ["what", "median", "floor", "times the floor", "goal"]
    rows = [
        [
            row["what"],
            row["note"] if row["value"] is None else f"{format_number(row['value'])} {row['unit']}",
            "" if row["floor"] is None else f"{format_number(row['floor'])} {row['unit']}",
            "" if row["ratio"] is None else f"{row['ratio']:.2f}",
            _goal(row),
        ]
        for row in document["rows"]
    ]
    used = [number for number in range(len(heads)) if any(row[number] for row in rows)]
    return [heads[number] for number in used], [[row[number] for number in used] for row in rows]


def _goal(row: Mapping[str, Any]) -> str:
    if row["goal"] is None:
        return ""
    measured = row["value"] if row["ratio"] is None else row["ratio"]
    missed = measured is not None and measured > row["goal"]
    return f"{row['goal']:g}{', missed' if missed else ''}"


def _tools_table(tools: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    heads = ["tool", "init", "known", "ready", "stop", "CPU", "RSS", "left", "note"]
    rows = []
    for tool in tools:
        use = tool["use"]
        if use is None:
            rows.append([tool["tool"], *[""] * 7, tool["note"]])
            continue
        times = (
            f"{use[field]:.3f} s" for field in ("init_s", "known_s", "ready_s", "stop_s", "cpu_s")
        )
        left = "" if tool["survivors"] is None else str(tool["survivors"])
        rows.append([tool["tool"], *times, f"{use['rss_bytes'] / 1e6:.0f} MB", left, tool["note"]])
    return heads, rows


def _pairs_table(pairs: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    heads = ["what", "on", "before", "after", "after / before", "before / floor", "after / floor"]
    has_fixed = any(pair.get("fixed") for pair in pairs)
    heads += ["after / fixed"] if has_fixed else []
    rows = []
    for pair in pairs:
        before, after, floor, unit = (pair[key] for key in ("before", "after", "floor", "unit"))
        rows.append([
            pair["what"],
            pair["where"],
            f"{format_number(before)} {unit}",
            f"{format_number(after)} {unit}",
            f"{after / before:.2f}" if before else "",
            f"{before / floor:.2f}" if floor else "",
            f"{after / floor:.2f}" if floor else "",
            *([f"{after / pair['fixed']:.2f}"] if has_fixed else []),
        ])  # fmt: skip
    return heads, rows


def _clients_table(
    clients: Mapping[str, Mapping[str, float]], cases: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    heads = ["µs for each call", *(case_title(case) for case in cases)]
    rows = [
        [client, *(format_number(taken[case]) for case in cases)]
        for client, taken in clients.items()
    ]
    return heads, rows


def main() -> None:
    """Parse the arguments, run the requested benchmarks, draw and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--run", nargs="?", const="", metavar="NAMES", help="all, or a,b,c")
    parser.add_argument("--before", metavar="PYTHON", help="interpreter with the earlier state")
    parser.add_argument("--fixed", metavar="PYTHON", help="interpreter with the fixed state")
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    names = list(BENCHMARKS) if options.run == "" else (options.run or "").split(",")
    if options.run is None:
        names = []
    elif options.run == "" and not options.before:
        names.remove("paired")
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"--run: unknown benchmark: {', '.join(sorted(unknown))}")
    if "paired" in names and not options.before:
        parser.error("--run paired: needs --before, the interpreter with the earlier state")
    RESULTS.mkdir(exist_ok=True)
    states = options.before, options.fixed
    failed = [name for name in names if not run(name, *states, is_quick=options.quick)]
    write_page()
    if failed:
        sys.exit(
            f"these benchmarks failed, their results are the earlier ones: {', '.join(failed)}"
        )


if __name__ == "__main__":
    main()
