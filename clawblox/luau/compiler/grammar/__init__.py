"""Luau's syntax: reads source into a tree whose names are already bound.

Every complaint about a source that is not Luau is raised here, with Luau's wording.

- `lexer`: source to tokens
- `tokens`: stepping through tokens
- `syntax`: the nodes of the tree
- `scope`: binding names to locals
- `typesyntax`: types, which are read and forgotten
- `expressions`: the grammar of expressions and functions
- `parser`: the grammar of statements, and `parse`
"""
