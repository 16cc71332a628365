"""Load generators, the simulated engine as a server, and the runner that makes the table of `docs/benchmarks.md`."""
