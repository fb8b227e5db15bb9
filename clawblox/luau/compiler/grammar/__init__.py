"""Luau's syntax: parses source into a tree whose names are bound already.

All errors about a source that is not Luau are raised here, with Luau's wording.

- `lexer`: source to tokens
- `tokens`: stepping through tokens
- `syntax`: the nodes of the tree
- `scope`: binding names to locals
- `typesyntax`: types, which are parsed and dropped
- `expressions`: the grammar of expressions and functions
- `parser`: the grammar of statements, and `parse`
"""
