"""What is known of an engine, and what counts when two sources differ."""

from __future__ import annotations

from services.inference_adapter.core.capabilities import UNKNOWN, Capabilities
from streamway.models.abilities import Ability, of_words, to_words


def test_what_was_tried_counts_more_than_what_a_table_says() -> None:
    said = Capabilities(frozenset({Ability.TOOLS, Ability.GRAMMAR}), frozenset({Ability.LOGPROBS}), "some")
    found = said.found({Ability.TOOLS: False, Ability.LOGPROBS: True, Ability.CONTINUES: True})
    assert found.can == {Ability.GRAMMAR, Ability.LOGPROBS, Ability.CONTINUES}
    assert found.cannot == {Ability.TOOLS}
    assert found.tried == {Ability.TOOLS, Ability.LOGPROBS, Ability.CONTINUES}
    assert found.profile == "some"


def test_nothing_is_known_of_an_engine_that_says_nothing() -> None:
    assert not UNKNOWN.can | UNKNOWN.cannot


def test_a_lease_tells_abilities_in_words_and_new_words_do_no_harm() -> None:
    told = to_words({Ability.TOOLS, Ability.CONTINUES})
    assert told == "continues tools"
    assert of_words(f"{told} telepathy") == {Ability.TOOLS, Ability.CONTINUES}
    assert of_words("") == frozenset()
