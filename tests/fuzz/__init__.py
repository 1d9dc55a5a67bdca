"""A fuzz of every op: kernel, formula and float64 on the same random call, held to bounds that the call itself gives.

    python -m tests.fuzz --minutes 30            every instruction set of this machine, 1, 2 and 8 threads
    python -m tests.fuzz --case 1234             one case again, told in full
    python -m tests.fuzz --sanitize              the kernels under the address and undefined-behaviour sanitizers

A case is a number. `draw` makes sizes, memory layouts, types, values and mistakes of it, `cases` the call, `families`
what ought to come of it in numbers that know their error (`near`), `judge` the verdict.
"""
