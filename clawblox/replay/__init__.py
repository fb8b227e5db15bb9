"""Verified replays: recordings are repeated in new processes of their world, and compared.

- ``plan``: what is repeated of a recording, and how much is compared.
- ``progress``: how far a replay has come.
- ``comparison``: compares the recording of a new process with the earlier one.
- ``new_recording``: reads the recording of a new process while it grows.
- ``verified_replay``: repeats a recording in a new process of its world.
- ``saved_starts``: the save that a resumed recording began from.
- ``attempt_places``, ``checked_scores``: attempts and scores as values.
- ``attempts``: the attempts of an experiment, in the order of its journal.
- ``sources``: the recordings of a run or an experiment, and which of them may continue which.
- ``verified_scores``: computes scores again, in worlds that begin with replayed ends.
- ``judged_files``: digests of the recordings and worlds that are judged.
- ``verified_run``: repeats these recordings, and connects them.
- ``kept_verification``: the results of the last command, in the directory of the run.
"""

from clawblox.replay.verified_run import VerifiedReplay, VerifiedRun, verify_run

__all__ = ["VerifiedReplay", "VerifiedRun", "verify_run"]
