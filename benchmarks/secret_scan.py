"""Cost of the secret scan, and its findings in files without secrets.

``python -m benchmarks.secret_scan [PATH…]`` scans every file below the paths, by default the
standard library and the installed packages of this interpreter, and prints the speed of a first
and of a second pass, the delays of another thread, and every finding by rule. With
``--without-re2`` the package google-re2 is not used even if it is installed. With ``--json
FILE`` the figures are also written to a file; ``--quick`` scans this repository's benchmarks only.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.measure import Row, report
from clawblox.checkpoint.secrets import RULESET, Scanner
from clawblox.checkpoint.secrets.patterns.accelerator import can_match
from clawblox.results import Finding

_CHUNK_BYTES = 256 << 10
_TICK_S = 0.001


class Ticker(threading.Thread):
    """Records the wake-up delays of a thread while other threads work."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.lags: list[float] = []
        self._is_over = threading.Event()

    def run(self) -> None:
        """Tick until stopped."""
        while not self._is_over.is_set():
            before = time.perf_counter()
            time.sleep(_TICK_S)
            self.lags.append(time.perf_counter() - before - _TICK_S)

    def stop(self) -> Sequence[float]:
        """End the thread and return the delays in seconds, sorted."""
        self._is_over.set()
        self.join()
        return sorted(self.lags)


def main() -> None:
    """Scan and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="files or directories")
    parser.add_argument("--list", action="store_true", help="print every finding")
    parser.add_argument("--without-re2", action="store_true", help="do without google-re2")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    options = parser.parse_args()
    if options.without_re2:
        sys.modules["re2"] = None  # type: ignore[assignment] # cannot be imported
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    paths = options.paths or ([Path(__file__).parent] if options.quick else installed)
    files = sorted({file for path in paths for file in _files(path)})
    means = "without re2" if can_match(b"") else "with re2"
    print(f"rule set {RULESET}, {means}, {len(files)} files")
    rows: list[Row] = []
    for name in ("first", "second"):
        scanner = Scanner()
        findings, taken = _pass(name, scanner, files)
        rows += taken
    print(f"{len(findings)} findings, {scanner.summary()['decoded_containers']} containers")
    for rule, count in Counter(finding.rule for finding in findings).most_common():
        print(f"{count:6d} {rule}")
    for finding in findings if options.list else ():
        print(f"  {finding}")
    report(f"secret scan, {means}", rows, options.json)


def _pass(name: str, scanner: Scanner, files: Sequence[Path]) -> tuple[list[Finding], list[Row]]:
    ticker = Ticker()
    ticker.start()
    begun, begun_cpu = time.perf_counter(), time.process_time()
    findings = [finding for file in files for finding in scanner.scan(str(file), _chunks(file))]
    elapsed, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    lags = ticker.stop()
    size = sum(file.stat().st_size for file in files)
    what = f"{name} pass, {size / 1e6:.0f} MB"
    return findings, [
        Row(f"{what}: speed", size / 1e6 / elapsed, "MB/s"),
        Row(f"{what}: CPU", cpu, "s"),
        Row(f"{what}: another thread late, median", lags[len(lags) // 2] * 1e3, "ms"),
        Row(f"{what}: another thread late, p99", lags[len(lags) * 99 // 100] * 1e3, "ms"),
        Row(f"{what}: another thread late, at most", lags[-1] * 1e3, "ms"),
    ]


def _files(path: Path) -> Iterator[Path]:
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file() and not file.is_symlink():
            yield file


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


if __name__ == "__main__":
    main()
