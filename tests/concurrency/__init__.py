"""Tests of ``clawblox.concurrency``."""
