"""Tests of conversations: what belongs to one, where it goes, whether a turn is under way."""
