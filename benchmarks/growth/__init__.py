"""How cost grows with streams, processes and time, and the models that describe it: python -m benchmarks.growth."""
