"""Tests of ``clawblox.rundir``."""
