"""Tests of single processes, without worlds."""
