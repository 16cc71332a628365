"""What a request says of the cache, and how the cache is asked then."""

from __future__ import annotations

import pytest

from services.router.core.cacheable import Way, may_read, may_store, way_of, young_enough
from streamway.tenancy import SemanticLookup
from streamway.v1 import common_pb2
from streamway.v1.common_pb2 import CacheControl, GenerationRequest

SEMANTIC = common_pb2.CACHE_POLICY_SEMANTIC
RELAXED, OFF = common_pb2.DURABILITY_RELAXED, common_pb2.DURABILITY_OFF


@pytest.mark.parametrize(
    ("request_", "wanted", "way"),
    [
        (GenerationRequest(cache=SEMANTIC, durability=RELAXED), SemanticLookup.BESIDE, Way.BESIDE),
        (GenerationRequest(cache=SEMANTIC, durability=RELAXED), SemanticLookup.BEFORE, Way.ALL),
        (GenerationRequest(cache=SEMANTIC, durability=RELAXED), SemanticLookup.OFF, Way.KEYED),
        (GenerationRequest(cache=SEMANTIC, durability=OFF), SemanticLookup.BESIDE, Way.ALL),
        (GenerationRequest(cache=SEMANTIC, durability=OFF), SemanticLookup.OFF, Way.KEYED),
        (
            GenerationRequest(cache=SEMANTIC, durability=RELAXED, cache_control=CacheControl(only_if_cached=True)),
            SemanticLookup.BESIDE,
            Way.ALL,
        ),
        (GenerationRequest(cache=common_pb2.CACHE_POLICY_EXACT, durability=RELAXED), SemanticLookup.BESIDE, Way.KEYED),
        (GenerationRequest(durability=RELAXED), SemanticLookup.BEFORE, Way.KEYED),
    ],
)
def test_only_what_has_a_channel_and_may_be_dispatched_is_asked_beside(
    request_: GenerationRequest, wanted: SemanticLookup, way: Way
) -> None:
    assert way_of(request_, wanted) is way


@pytest.mark.parametrize(
    ("control", "read", "store"),
    [
        (CacheControl(), True, True),
        (CacheControl(no_cache=True), False, True),
        (CacheControl(no_store=True), True, False),
        (CacheControl(max_age_s=0), False, True),
        (CacheControl(max_age_s=1), True, True),
        (CacheControl(no_cache=True, max_age_s=60, no_store=True), False, False),
    ],
)
def test_what_may_be_read_and_what_may_be_stored(control: CacheControl, read: bool, store: bool) -> None:
    request = GenerationRequest(cache_control=control)
    assert (may_read(request), may_store(request)) == (read, store)


def test_an_answer_is_young_enough_up_to_the_age_that_is_named() -> None:
    assert young_enough(GenerationRequest(), 10**9)
    request = GenerationRequest(cache_control=CacheControl(max_age_s=60))
    assert [young_enough(request, age) for age in (0, 60, 61)] == [True, True, False]
