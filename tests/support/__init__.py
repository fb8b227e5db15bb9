"""Helpers of the tests, by subject; tests and fixtures are in no module here."""
