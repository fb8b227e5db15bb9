"""Tests of the misbehaving world: it conforms, and each flag has its documented fault."""
