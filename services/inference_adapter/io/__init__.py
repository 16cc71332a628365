"""I/O around the core of the inference-adapter."""
