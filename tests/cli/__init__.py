"""Tests of the command line, as a person uses it: other processes, their output and exit."""
