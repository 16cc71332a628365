"""What an engine can do beside answering, in words that workers and routers share.

A worker lists in its lease what its engine is *known not* to do. What is not listed may or may not be possible: a router that
does not know sends the request, and the engine says itself what it refuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Ability(StrEnum):
    """One thing that engines differ in."""

    CONTINUES = "continues"  # goes on behind a partial answer instead of beginning another
    TOKEN_IDS = "token_ids"  # noqa: S105 - no password; tells the ids of its tokens to who asks
    PRIORITY = "priority"  # orders what waits in it by a priority of each request
    CACHE_SALT = "cache_salt"  # keeps the KV of tenants apart by a salt of each request
    CACHED_TOKENS = "cached_tokens"  # counts in its usage how much of a prompt was in KV
    KV_USE = "kv_use"  # says how full its KV is
    TOOLS = "tools"  # makes the tool calls that a request demands
    GRAMMAR = "grammar"  # makes JSON where a request demands a schema
    LOGPROBS = "logprobs"  # tells log probabilities
    SEVERAL_CHOICES = "several_choices"  # makes more than one choice of a request


def to_words(abilities: Iterable[Ability]) -> str:
    """As they stand in a lease, always in the same order."""
    return " ".join(sorted(abilities))


def of_words(words: str) -> frozenset[Ability]:
    """What a lease lists; words of a later version say nothing to this one."""
    known = set(Ability)
    return frozenset(Ability(word) for word in words.split() if word in known)
