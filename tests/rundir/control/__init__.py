"""Tests of the control socket: real sockets, other processes as clients and as orchestrators."""
