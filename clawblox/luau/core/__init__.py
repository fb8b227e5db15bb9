"""The ground everything stands on: values, operators, budgets, errors, the thread's machine.

Knows nothing of source code, coroutines or libraries.

- `errors`: the exceptions of the VM
- `limits`: the budget of one call from the host
- `machine`: what the rooms below the VM see of it, and the coroutine that runs on it
- `context`: which VM runs on this thread
- `values`: nil, tables, userdata, vectors and buffers as Python objects
- `border`: the length of a table
- `numbers`: arithmetic, and numbers as text
- `operators`: what generated code calls for operands its fast paths do not handle
- `iteration`: what loops go through
- `random`: the random stream of a VM
- `deep`: threads with a stack large enough for Luau's recursion
"""
