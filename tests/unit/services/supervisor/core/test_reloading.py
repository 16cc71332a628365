from __future__ import annotations

from services.supervisor.core.reloading import chosen

LEASES = {
    "b": {"engine": "llamacpp"},
    "a": {"engine": "llamacpp_inside"},
    "v": {"engine": "openai_http"},
}


def test_all_workers_with_a_llamacpp_are_asked_one_after_another() -> None:
    assert chosen(LEASES, ()) == (["a", "b"], "")


def test_those_named_are_asked_in_their_order_and_once() -> None:
    assert chosen(LEASES, ("b", "a", "b")) == (["b", "a"], "")


def test_a_name_that_nobody_has_asks_nobody() -> None:
    names, why = chosen(LEASES, ("a", "z"))
    assert not names
    assert "no worker 'z'; there are a, b, v" in why


def test_without_a_llamacpp_there_is_nobody_to_ask() -> None:
    names, why = chosen({"v": LEASES["v"]}, ())
    assert not names
    assert "no worker has a llama.cpp" in why
