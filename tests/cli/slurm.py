"""Stand-ins for ``sbatch``, ``srun`` and ``scontrol`` that deliver signals like Slurm.

- ``sbatch --wait SCRIPT`` runs a script as a job, once for each task of ``--array``, and again
  after each requeue. It ends with the job's status.
- ``srun COMMAND`` runs a command as a step of the job.
- ``scontrol requeue JOB`` ends a job and puts it into the queue again.

No real time passes: lines on the standard input of ``sbatch`` trigger the events of a job.
``signal`` is the moment of ``--signal``: with ``B:`` only the batch shell gets it, otherwise all
steps but not the shell. ``limit`` is the end of ``--time``: all processes get SIGTERM. ``killwait``
is KillWait later: they get SIGKILL. ``lost`` is the death of a node: the job is requeued.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

STATE_ENV = "STAND_IN_SLURM"
"""Variable with the directory that these programs share."""
_ARRAY_ID = 100


def install(directory: Path, state: Path) -> dict[str, str]:
    """Write the programs into a directory; return their environment."""
    for path in (directory, state / "steps", state / "requeued"):
        path.mkdir(parents=True)
    for name in ("sbatch", "srun", "scontrol"):
        program = directory / name
        words = shlex.join([sys.executable, __file__, name])
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        program.chmod(0o755)
    return {STATE_ENV: str(state)}


def _state() -> Path:
    return Path(os.environ[STATE_ENV])


def _read_options(script: Path, given: list[str]) -> dict[str, str]:
    lines = re.findall(r"^#SBATCH (--.+)$", script.read_text(), re.MULTILINE)
    pairs = (word.removeprefix("--").partition("=") for word in (*lines, *given))
    return {name: value for name, _, value in pairs}


class Job:
    """A job in the queue, or a task of an array."""

    def __init__(self, options: dict[str, str], words: list[str], task: int | None) -> None:
        tasks = _read_tasks(options)
        self.options = options
        self.status = 0
        self._words = words
        # The last task has the id of the array itself.
        number = _ARRAY_ID if task in (None, *tasks[-1:]) else _ARRAY_ID + 1 + tasks.index(task)
        self._name = str(number) if task is None else f"{_ARRAY_ID}_{task}"
        self._starts = 0
        self._shell: subprocess.Popen[bytes] | None = None
        self._env = {
            **os.environ,
            "SLURM_JOB_ID": str(number),
            "SLURM_JOB_NAME": options["job-name"],
            "STAND_IN_JOB": str(_state() / self._name),
        }
        if task is not None:
            self._env |= {"SLURM_ARRAY_JOB_ID": str(_ARRAY_ID), "SLURM_ARRAY_TASK_ID": str(task)}
        output = options["output"].replace("%j", str(number)).replace("%A", str(_ARRAY_ID))
        self._output = Path(output.replace("%a", str(task)))
        self._requeued = _state() / "requeued" / self._name

    def run(self) -> None:
        """Run the script, and run it again whenever the job is requeued."""
        while True:
            mode = "ab" if self._starts and self.options.get("open-mode") == "append" else "wb"
            env = {**self._env, "SLURM_RESTART_COUNT": str(self._starts)}
            with self._output.open(mode) as output:
                self._shell = subprocess.Popen(
                    self._words,
                    env=env if self._starts else self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            (_state() / f"shell-{self._name}").write_text(str(self._shell.pid))
            self.status = self._shell.wait()
            self._starts += 1
            if not self._requeued.exists():
                return
            self._requeued.unlink()

    def tell(self, moment: str) -> None:
        """Trigger an event of the job."""
        if self._shell is None or self._shell.poll() is not None:
            return
        if moment == "signal":
            match = re.fullmatch(r"(B:)?(\w+)(@\d+)?", self.options["signal"])
            assert match is not None
            number = signal.Signals[f"SIG{match[2]}"]
            _send(number, [self._shell.pid] if match[1] else self._steps())
        elif moment == "limit":
            _send(signal.SIGTERM, self._processes())
        else:
            if moment == "lost" and "requeue" in self.options:
                self._requeued.touch()
            _send(signal.SIGKILL, self._processes())

    def _steps(self) -> list[int]:
        return [int(path.name) for path in (_state() / "steps").iterdir()]

    def _processes(self) -> list[int]:
        """Return all processes of the job, like a cgroup."""
        mark = f"STAND_IN_JOB={_state() / self._name}".encode()
        return [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/environ")
            if _has(path, mark)
        ]


def _has(path: Path, mark: bytes) -> bool:
    try:
        return mark in path.read_bytes().split(b"\0")
    except OSError:
        return False


def _send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _read_tasks(options: dict[str, str]) -> list[int]:
    first, _, last = options.get("array", "").partition("-")
    return list(range(int(first), int(last) + 1)) if first else []


def sbatch(words: list[str]) -> int:
    given = []
    while words[0].startswith("--"):
        given.append(words.pop(0))
    assert "--wait" in given
    options = _read_options(Path(words[0]), given)
    jobs = [Job(options, ["/bin/bash", *words], task) for task in _read_tasks(options) or [None]]
    threads = [threading.Thread(target=job.run) for job in jobs]
    for thread in threads:
        thread.start()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    for thread in threads:
        thread.join()
    return max(job.status for job in jobs)


def _listen(jobs: list[Job]) -> None:
    for line in sys.stdin:
        for job in jobs:
            job.tell(line.strip())


def srun(words: list[str]) -> int:
    with subprocess.Popen(words) as step:
        mark = _state() / "steps" / str(step.pid)
        mark.touch()
        status = step.wait()
        mark.unlink()
    return status if status >= 0 else 128 - status


def scontrol(words: list[str]) -> int:
    verb, job = words
    assert verb == "requeue"
    shell = _state() / f"shell-{job}"
    if not shell.exists():
        sys.stderr.write(f"scontrol: {job} is not a job, or is a whole array\n")
        return 1
    (_state() / "requeued" / job).touch()
    os.kill(int(shell.read_text()), signal.SIGTERM)
    return 0


if __name__ == "__main__":
    _, name, *words = sys.argv
    sys.exit({"sbatch": sbatch, "srun": srun, "scontrol": scontrol}[name](words))
