"""Tests of the misbehaving world: it conforms, and each flag breaks what it says."""
