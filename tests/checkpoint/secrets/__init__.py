"""Tests of the secret scan."""
