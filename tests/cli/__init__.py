"""Tests of the command line as separate processes, by their output and exit status."""
