"""Lowers a syntax tree to Python text, and finds what the rest of a function needs.

The same source always gives the same code: snapshots depend on it (`FORMAT` in `runtime.chunk`).

- `direct`: local functions that are only called by name
- `infer`: locals that only hold numbers
- `variables`: what the variables of generated code may hold
- `ir`: structured code, and how it is written as functions and continuations
- `liveness`: the variables that the rest of a function needs
- `key_order`: the order of the fields of a table literal
- `lowering`: the state of lowering one function
- `lower_operators`, `lower_expressions`, `lower_statements`: the syntax nodes
"""
