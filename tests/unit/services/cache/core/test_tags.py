"""What an entry can be removed by."""

from __future__ import annotations

from services.cache.core.tags import MOST_CHARS, MOST_TAGS, caller_of, tags_of
from tests.unit.services.cache.requests import body, typed


def test_metadata_makes_tags() -> None:
    metadata = {"user": "ann", "prompt_version": "3", "cache_tags": "doc-1, doc-2,,doc-1"}
    tags = ("user:ann", "prompt:3", "doc-1", "doc-2")
    assert tags_of(typed(metadata=metadata)) == tags
    assert tags_of(body({"metadata": metadata})) == tags
    assert caller_of(tags) == "user:ann"


def test_an_openai_body_names_its_user() -> None:
    assert tags_of(body({"user": "u", "safety_identifier": "s"})) == ("user:s",)
    assert tags_of(body({"user": "u"}, metadata={"cache_tags": "x"})) == ("user:u", "x")


def test_there_are_few_and_short_ones_and_bad_bodies_have_none() -> None:
    many = ",".join(str(number) for number in range(50))
    assert len(tags_of(typed(metadata={"cache_tags": many}))) == MOST_TAGS
    assert tags_of(typed(metadata={"cache_tags": "x" * (MOST_CHARS + 1)})) == ()
    assert tags_of(body(raw=b"{")) == ()
    assert tags_of(body({"metadata": [1], "user": 5})) == ()
    assert caller_of(()) == ""
