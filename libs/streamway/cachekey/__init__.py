"""The key of a request: equal for requests that mean the same, for the cache's entries and the router's flights."""

from streamway.cachekey.canonical import NotCanonical, canonical_form
from streamway.cachekey.context import context_key, partition_key, question_of, without_turns
from streamway.cachekey.folded import folded_key
from streamway.cachekey.key import exact_key

__all__ = [
    "NotCanonical",
    "canonical_form",
    "context_key",
    "exact_key",
    "folded_key",
    "partition_key",
    "question_of",
    "without_turns",
]
