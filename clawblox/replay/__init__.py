"""Verified replays: recordings are repeated in new processes of their world, and compared.

- ``verified_replay``: repeats a recording in a new process of its world.
- ``verified_run``: repeats the recordings of a run, and connects them.
"""

from clawblox.replay.verified_run import VerifiedReplay, VerifiedRun, verify_run

__all__ = ["VerifiedReplay", "VerifiedRun", "verify_run"]
