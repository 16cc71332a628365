"""A model of the mesh around one generation: the library's own code, a real Valkey, and faults at every step.

store.py     the server, its log of writes, and how it loses the newest of them
wire.py      connections on which requests and replies wait until the schedule moves them
actors.py    router, workers, reclaimers, readers
schedule.py  which step comes next, from a seed or from a recorded list; shrinking
checks.py    the invariants of docs/protocol-journal.md
mutants.py   each rule taken out by itself
"""
