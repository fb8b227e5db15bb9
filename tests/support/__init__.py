"""Helpers of the tests, by subject, without tests and fixtures."""
