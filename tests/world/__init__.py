"""Tests of ``clawblox.world.sync_world``."""
