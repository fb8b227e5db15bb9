"""The standard library: one module per library, named as Luau names it.

- `base`, `bit32`, `buffer`, `coroutine`, `debug`, `math`, `os`, `string`, `table`, `utf8`,
  `vector`: the functions scripts find in their globals
- `global_table`: the globals of a new VM
- `support`: modules that several libraries, or one large function, need

The ``Raises:`` of a library function are about its arguments. Functions whose work grows with their
arguments also raise `LuaError` when the call has used up its steps or its memory.
"""
