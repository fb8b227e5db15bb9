"""Runs compiled code: chunks, coroutines, errors with positions, and the host interface.

- `chunk`: a compiled source, its functions and continuations
- `suspension`: conversion of running code to data
- `coroutines`: running, suspending and closing coroutines
- `diagnose`: positions, messages and the Luau stack
- `raw`: functions, values and vector members of a host, without conversions
- `host`: functions and objects of a host, and conversions of values
- `heap`: the estimated size of the heap, and weak tables
- `limited`: the limits of a call: steps, memory, depth
"""
