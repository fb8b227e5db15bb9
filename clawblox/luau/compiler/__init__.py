"""Compiles source text to Python text, without running it.

The same source always gives the same code, and snapshots depend on that (`FORMAT` in
`runtime.chunk`). All syntax errors are raised here, with Luau's wording.

Source to syntax tree:

- `lexer`: source to tokens, and stepping through them
- `syntax`: the nodes of the tree, and the scopes that bind names to locals
- `typesyntax`: types (parsed and dropped)
- `expressions`: the grammar of expressions and functions
- `parser`: the grammar of statements, and `parse`

Syntax tree to Python code and continuations:

- `infer`: functions that are only called by name, and locals that are always numbers
- `ir`: structured code, written as functions and continuations
- `liveness`: the variables needed by the rest of a function
- `lowering`: the state of lowering one function
- `lower_operators`, `lower_expressions`, `lower_statements`: the syntax nodes
"""
