"""Names of models: what the section may say, what a name means, and what a change of the file does."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from streamway.config import SharedSettings
from streamway.models import ModelRouting, load_models
from streamway.models.prices import Price, price
from streamway.models.rows import routing_of
from streamway.models.watching import ModelsWatch
from streamway.runtime.start import StartError
from streamway.v1 import common_pb2

GOOD = {
    "aliases": {"gpt": "big", "helper": "assistant"},
    "fallbacks": {"big": ["middle", "tiny"], "assistant": ["tiny"]},
    "choices": {"assistant": {"large": "big", "small": "middle"}},
}


def test_an_alias_stands_for_a_model_and_its_fallbacks_follow() -> None:
    routing = routing_of(GOOD)
    assert routing.in_order("gpt", prefer_small=False) == ["big", "middle", "tiny"]
    assert routing.in_order("unknown", prefer_small=False) == ["unknown"]
    assert routing.names == ["assistant", "gpt", "helper"]
    assert (routing.models("gpt"), routing.models("helper")) == (["big"], ["big", "middle"])


def test_of_a_choice_the_preferred_one_comes_first_then_the_other_then_fallbacks_once_each() -> None:
    routing = routing_of(GOOD)
    assert routing.in_order("helper", prefer_small=False) == ["big", "middle", "tiny"]
    assert routing.in_order("assistant", prefer_small=True) == ["middle", "big", "tiny"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"alias": {}}, "alias: "),
        ({"aliases": {"a": ""}}, "aliases.a: must be the name of a model"),
        ({"aliases": {"a": 3}}, "aliases.a: must be the name of a model"),
        ({"aliases": {"a": "b", "b": "c"}}, "aliases.a: 'b' is an alias itself"),
        ({"aliases": {"a": "b"}, "choices": {"a": {"large": "x", "small": "y"}}}, "aliases.a: there is a choice"),
        ({"aliases": {"a": "b"}, "fallbacks": {"a": ["c"]}}, "fallbacks.a: is an alias"),
        ({"aliases": {"a": "b"}, "fallbacks": {"c": ["a"]}}, "fallbacks.c: 'a' must be a model"),
        ({"fallbacks": {"c": []}}, "fallbacks.c: "),
        ({"fallbacks": {"c": [str(n) for n in range(9)]}}, "fallbacks.c: "),
        ({"choices": {"a": {"large": "x", "small": "x"}}}, "choices.a: large and small are the same"),
        ({"choices": {"a": {"large": "a", "small": "x"}}}, "choices.a.large: 'a' must be a model"),
        ({"choices": {"a": {"large": "x"}}}, "choices.a.small: "),
        ({"choices": {"a": {"large": "x", "small": "y", "kv_used": 2}}}, "choices.a.kv_used: "),
        ({"choices": {"a": {"large": "x", "small": "y", "hold_s": "long"}}}, "choices.a.hold_s: "),
        ({"prices": {"a": {"input": 1}}}, "prices.a.output: "),
        ({"prices": {"a": {"input": -1, "output": 1}}}, "prices.a.input: "),
        ({"prices": {"a": {"input": 1, "output": float("nan")}}}, "prices.a.output: "),
        ({"prices": {"a": {"input": 1, "output": float("inf")}}}, "prices.a.output: "),
        ({"prices": {"a": {"input": "1", "output": 1}}}, "prices.a.input: "),
        ({"prices": {"a": {"input": 1, "output": 1}}, "aliases": {"a": "b"}}, "prices.a: 'a' must be a model"),
        ([], ""),
    ],
)
def test_each_fault_says_where_it_is(content: object, told: str) -> None:
    if not content:
        assert routing_of(content) == ModelRouting()
        return
    with pytest.raises(ValueError, match=told):
        routing_of(content)


async def test_a_good_change_replaces_the_whole_and_a_bad_one_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "streamway.yaml"
    path.write_text("models: {aliases: {a: b}}")
    monkeypatch.setenv("STREAMWAY_CONFIG", str(path))
    registry = CollectorRegistry()
    watch = ModelsWatch(SharedSettings(), registry)
    assert watch.routing.aliases == {"a": "b"}
    assert not await watch.look()
    path.write_text("models: {aliases: {a: longer}}")
    assert await watch.look()
    assert watch.routing.aliases == {"a": "longer"}
    path.write_text("models: {aliases: {a: longer, longer: wrong}}")
    assert not await watch.look()
    assert watch.routing.aliases == {"a": "longer"}
    with pytest.raises(StartError, match=r"models\.aliases\.a: 'longer' is an alias itself"):
        load_models()
    counts = [
        registry.get_sample_value("streamway_models_reloads_total", {"outcome": o}) for o in ("applied", "refused")
    ]
    assert counts == [1, 1]
    for _ in range(25):
        assert not await watch.look()
    refused = registry.get_sample_value("streamway_models_reloads_total", {"outcome": "refused"})
    assert refused == 1, "one problem is counted once"


def test_usage_costs_its_fresh_its_cached_and_its_made_tokens_and_nothing_without_a_price() -> None:
    prices = routing_of(
        {"prices": {"big": {"input": 2, "output": 10, "cached": 0.5}, "tiny": {"input": 1, "output": 3}}}
    ).prices
    assert prices["tiny"] == Price(1, 3, 1)
    usage = common_pb2.Usage(prompt_tokens=3_000_000, cached_prompt_tokens=1_000_000, completion_tokens=500_000)
    assert price(usage, "small", prices) is None
    assert not usage.HasField("cost")
    assert price(usage, "big", prices) == usage.cost == 2 * 2 + 0.5 + 5
    # An engine that counts more cached tokens than the prompt has gets nobody money back.
    assert prices["big"].of(common_pb2.Usage(prompt_tokens=2, cached_prompt_tokens=9)) == pytest.approx(1e-6)
