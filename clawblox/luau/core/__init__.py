"""Values, operators, budgets and errors, on which all other packages of the VM build.

Nothing here knows source code, generated code or libraries.

- `errors`: the exceptions of the VM
- `limits`: the budget of one call from the host
- `machine`: the part of the VM that the packages below it use, and the coroutine that it runs
- `context`: which VM runs on this thread
- `values`: nil, tables, userdata, vectors and buffers as Python objects
- `border`: the length of a table
- `numbers`: arithmetic, and numbers as text
- `vectors`: arithmetic of vectors
- `operators`: what generated code calls for operands its fast paths do not handle
- `iteration`: what loops go through
- `random`: the random stream of a VM
- `deep`: threads with a stack large enough for Luau's recursion
"""
