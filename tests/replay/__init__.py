"""Tests of verified replays."""
