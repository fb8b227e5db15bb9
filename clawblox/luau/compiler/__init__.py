"""Compiles source text to Python text; nothing of a script runs here.

- `grammar`: source to syntax tree
- `codegen`: syntax tree to Python code and continuations
"""
