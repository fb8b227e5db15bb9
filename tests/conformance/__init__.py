"""Tests of the checks of worlds, and of the bad worlds that they must detect."""
