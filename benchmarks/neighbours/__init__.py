"""What a tenant loses by a neighbour, in the same processes and in others: python -m benchmarks.neighbours."""
