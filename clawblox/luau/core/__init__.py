"""Values, operators, budgets and errors, on which all other packages of the VM build.

Nothing here knows source code, generated code or libraries.

- `errors`: the exceptions of the VM
- `limits`: the units of steps and memory
- `machine`: the VM as the packages below it see it, and the VM that runs on this thread
- `values`: nil, tables, userdata, vectors and buffers as Python objects
- `tables`: the length of a table, and the room of removed entries
- `numbers`: arithmetic, and numbers as text
- `vectors`: arithmetic of vectors
- `operators`: what generated code calls for operands its fast paths do not handle
- `iteration`: what loops go through
- `random`: the random stream of a VM
- `deep`: threads with a stack large enough for Luau's recursion
"""
