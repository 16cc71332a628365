"""Other caches with the same vectors, in an environment of their own."""
