"""Tests of ``clawblox.system``."""
