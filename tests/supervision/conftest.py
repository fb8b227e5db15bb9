"""Processes are spawned as in the tests of ``system.process``."""

from tests.system.process.conftest import cookie, log, start

__all__ = ["cookie", "log", "start"]
