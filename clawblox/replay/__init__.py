"""Verified replays: repeats recordings in new processes of their worlds, and compares the results.

- ``plan``: the repeated part of a recording, and the extent of the comparison.
- ``comparison``: compares the recording of a new process with the earlier one.
- ``new_recording``: reads the recording of a new process while it grows.
- ``verified_replay``: repeats a recording in a new process of its world.
- ``results``: the results, as values and as JSON.
- ``attempts``: the attempts of an experiment, in the order of its journal.
- ``sources``: the recordings of a run or an experiment, and their possible continuations.
- ``verified_scores``: computes scores again, in worlds that start from replayed ends.
- ``verified_run``: repeats these recordings, and connects them.
- ``kept_verification``: the results of the last command, in the directory of the run.
"""

from clawblox.replay.results import VerifiedReplay, VerifiedRun
from clawblox.replay.verified_run import verify_run

__all__ = ["VerifiedReplay", "VerifiedRun", "verify_run"]
