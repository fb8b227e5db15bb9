"""Tests of ``clawblox.world``."""
