"""Tests of ``clawblox.config``."""
