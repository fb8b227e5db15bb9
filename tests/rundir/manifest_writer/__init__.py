"""Tests of the manifest writer, alone and among writers that know its lock and that do not."""
