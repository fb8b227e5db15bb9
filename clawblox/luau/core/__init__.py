"""Values, operators, budgets and errors, the basis of all other packages of the VM.

It is independent of source code, generated code and libraries.

- `errors`: the exceptions of the VM
- `limits`: the units of steps and memory
- `machine`: the interface of the VM for the packages below it, and the current VM of a thread
- `values`: nil, tables, userdata, vectors and buffers as Python objects
- `tables`: the length of a table, and the memory of removed entries
- `numbers`: arithmetic, and conversion between numbers and text
- `vectors`: arithmetic of vectors
- `operators`: operators for operands that the fast paths of generated code do not handle
- `iteration`: the iterators of loops
- `random`: the random stream of a VM
- `deep`: threads with a stack large enough for Luau's recursion
"""
