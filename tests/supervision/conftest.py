"""The fixtures of ``system.process`` for spawning processes."""

from tests.system.process.conftest import cookie, log, start

__all__ = ["cookie", "log", "start"]
