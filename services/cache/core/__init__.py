"""Decisions of the cache: the key of a request, what may be read and stored, what is evicted."""
