"""Tests of worlds that die or hang, or seem to."""
