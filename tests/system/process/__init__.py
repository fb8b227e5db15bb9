"""Tests of single processes and trees, below any world."""
