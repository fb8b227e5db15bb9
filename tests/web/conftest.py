"""A browser, shared by the tests of a module."""

from tests.engine.page.conftest import browser

__all__ = ["browser"]
