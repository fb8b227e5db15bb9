"""Tests of ``clawblox.telemetry``."""
