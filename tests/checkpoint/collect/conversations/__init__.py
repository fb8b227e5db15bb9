"""Tests of conversations: their files, their places, and turns in progress."""
