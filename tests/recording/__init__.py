"""Recordings: their format, writing and reading."""
