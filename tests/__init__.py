"""Tests of clawblox, over real processes, sockets and files."""
