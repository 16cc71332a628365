"""A simulated engine: the pure step, its text and its faults."""
