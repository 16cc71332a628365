"""The cache service: answers that were given before, by exact key, each tenant in a partition of its own."""
