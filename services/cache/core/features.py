"""A pair of questions as numbers, for the verifier that learns from a deployment's own audits."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from services.cache.core.vetoes import chain
from services.cache.core.vetoes.difference import difference
from services.cache.core.vetoes.entities import entities_of
from services.cache.core.vetoes.finding import Finding
from services.cache.core.vetoes.text import Text

# A flag for each rule that can doubt; those that only refuse never come here.
_FLAGS: Final = ("dates", "negation", "antonyms", "scope", "entities", "order", "swap", "insertion")
NAMES: Final = (
    "similarity",
    "content_overlap",
    "stem_overlap",
    "smaller_contained",
    "bigram_overlap",
    "only_here",
    "only_there",
    "shared",
    "length_ratio",
    "turns",
    "opposites",
    "same_start",
    *(f"doubt_{name}" for name in _FLAGS),
    "entity_alone",
)
# More words than this tell nothing more.
_MOST_WORDS: Final = 6
# Words that differ are told apart by the remainder of a checksum.
BUCKETS: Final = 128


def features(asked: Text, stored: Text, similarity: float, doubts: Sequence[Finding]) -> tuple[float, ...]:
    """One number for each of `NAMES`; overlaps are 0 … 1, counts are capped."""
    between = difference(asked, stored)
    here, there = between.content
    shared = len(asked.bag & stored.bag)
    sizes = sorted((len(asked.surface) or 1, len(stored.surface) or 1))
    raised = {finding.rule for finding in doubts}
    entities = entities_of(asked).keys() ^ entities_of(stored).keys()
    return (
        similarity,
        _overlap(asked.bag, stored.bag),
        _overlap(asked.stems, stored.stems),
        shared / (min(len(asked.bag), len(stored.bag)) or 1),
        _overlap(asked.once(_bigrams), stored.once(_bigrams)),
        float(min(len(here), _MOST_WORDS)),
        float(min(len(there), _MOST_WORDS)),
        float(min(shared, _MOST_WORDS)),
        sizes[0] / sizes[1],
        float(min(between.turns, _MOST_WORDS)),
        float(min(len(between.opposites), _MOST_WORDS)),
        float(asked.content[:1] == stored.content[:1]),
        *(float(name in raised) for name in _FLAGS),
        float(bool(entities)),
    )


def differing(asked: Text, stored: Text) -> bytes:
    """Which content words only one of the texts has, each as its bucket: which words change an answer is learned by the word."""
    here, there = difference(asked, stored).content
    return bytes(sorted({zlib.crc32(word.encode()) % BUCKETS for word in (*here, *there)}))


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard; two empty sets are equal."""
    union = len(one | other)
    return len(one & other) / union if union else 1.0


def _bigrams(text: Text) -> frozenset[str]:
    folded = text.surface.casefold()
    return frozenset(folded[i : i + 2] for i in range(len(folded) - 1))


assert set(_FLAGS) <= set(chain.NAMES)
