"""Tests of what happens to worlds that die or hang, or seem to."""
