"""From source text to Python text: what is known of a script before it runs.

- `grammar`: source to syntax tree
- `codegen`: syntax tree to Python code and continuations
"""
