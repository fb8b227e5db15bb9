"""Tests of the manifest writer, alone and with other writers with or without the lock."""
