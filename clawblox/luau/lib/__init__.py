"""The standard library: one module a library, named as Luau names it.

- `base`, `bit32`, `buffer`, `coroutine`, `debug`, `math`, `os`, `string`, `table`, `utf8`,
  `vector`: the functions scripts find in their globals
- `global_table`: the globals of a new VM
- `support`: what several libraries, or one large function, need
"""
