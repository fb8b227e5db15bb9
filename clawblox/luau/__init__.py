"""Luau in pure Python, its whole state serialisable at any point."""
