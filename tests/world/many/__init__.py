"""Tests of many worlds at a time, in one orchestrator or several."""
