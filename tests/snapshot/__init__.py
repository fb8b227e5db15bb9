"""Tests of ``clawblox.snapshot``."""
