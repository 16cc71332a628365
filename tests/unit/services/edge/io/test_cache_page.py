"""What the edge tells of the cache as JSON."""

from __future__ import annotations

from services.edge.io.cache_page import shown
from streamway.v1 import cache_pb2


def test_numbers_are_numbers_and_texts_of_digits_stay_texts() -> None:
    stats = cache_pb2.StatsResponse(hits=2**53)
    stats.semantic.refused["antonyms"] = 3
    stats.semantic.near.add(question="42", near="43", similarity=0.5)
    stats.savings.lines.add(name="exact", tokens=-5)
    told = shown(stats)
    assert (told["available"], told["hits"], told["misses"]) == (True, 2**53, 0)
    assert told["semantic"]["refused"] == {"antonyms": 3}
    assert (told["semantic"]["near"][0]["question"], told["savings"]["lines"][0]["tokens"]) == ("42", -5)


def test_what_is_absent_is_not_told() -> None:
    assert "semantic" not in shown(cache_pb2.StatsResponse())
    told = shown(cache_pb2.StatsResponse(semantic=cache_pb2.SemanticStats(threshold=0.9)))
    assert "wrong_bound" not in told["semantic"]
