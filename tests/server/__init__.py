"""Tests of the kit to write worlds, and of the example worlds on it."""
