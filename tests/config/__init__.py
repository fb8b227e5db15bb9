"""Tests of ``clawblox.config.world_toml``."""
