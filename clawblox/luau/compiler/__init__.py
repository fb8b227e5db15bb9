"""Compiles source text to Python text, without running any of it.

- `grammar`: source to syntax tree
- `codegen`: syntax tree to Python code and continuations
"""
