"""Tests of many concurrent worlds, in one orchestrator or several."""
