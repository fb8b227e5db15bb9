"""Tests of ``clawblox.instance.instance``."""
