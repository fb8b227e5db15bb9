"""Runs compiled code: chunks, coroutines, errors with positions, and the host's side.

- `chunk`: a compiled source, its functions and continuations
- `suspension`: how running code becomes data
- `coroutines`: running, suspending and closing coroutines
- `failed_call`: an error instead of the result of a suspended call
- `diagnose`: positions, messages and the Luau stack
- `raw`: functions of a host that take Luau values as they are
- `host_value`: values of a host that are saved by their contents
- `vector_type`: the name and the members of vectors
- `host`: what a host lends to scripts, and conversions of values
- `measure`: the estimated size of the heap
- `garbage`: weak tables
- `limited`: the limits of a call: steps, memory, depth
"""
