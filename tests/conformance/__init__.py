"""Tests of the checker of worlds, and of the worlds that it must see through."""
