"""Prefix affinity: names of blocks, the index, the decision."""

from __future__ import annotations

from services.router.core.decision import Branch, Candidate, Reason, Wanted
from services.router.core.pool import Pool
from services.router.core.prefix import PrefixAffinity, PrefixIndex, block_names
from services.router.core.queues import EVERY_LANE
from streamway.v1 import common_pb2


def _request(*contents: str, tenant: str = "t") -> common_pb2.GenerationRequest:
    messages = [common_pb2.Message(role="user", content=content) for content in contents]
    return common_pb2.GenerationRequest(model="m", tenant=tenant, messages=messages)


def test_longer_conversations_begin_with_the_names_of_shorter_ones() -> None:
    short, longer = block_names(_request("x" * 1000)), block_names(_request("x" * 1000, "y" * 1000))
    assert len(short) == 3
    assert len(longer) == 7
    assert longer[:3] == short


def test_names_tell_tenants_and_contents_apart_and_bodies_are_read_too() -> None:
    one = block_names(_request("x" * 1000))
    assert not set(one) & set(block_names(_request("x" * 1000, tenant="other")))
    assert not set(one) & set(block_names(_request("z" + "x" * 999)))
    assert len(block_names(common_pb2.GenerationRequest(openai_body=b"{" + b"x" * 600))) == 2
    assert len(block_names(_request("x" * 3_000_000))) == 512


def test_matches_say_how_much_of_the_beginning_each_worker_was_sent() -> None:
    index = PrefixIndex(100)
    index.note([1, 2, 3], "a")
    index.note([1, 2], "b")
    index.note([9], "c")
    assert index.matches((1, 2, 3, 4)) == [(3, "a"), (2, "b")]
    assert index.matches((7,)) == index.matches(()) == []


def test_the_index_is_bounded_and_beginnings_stay_longest() -> None:
    index = PrefixIndex(4)
    index.note([1, 2, 3], "a")
    index.note([1, 7], "b")
    assert len(index) == 4
    assert index.matches((1, 2, 3)) == [(2, "a"), (1, "b")]
    index.forget_all_but({"b"})
    assert index.matches((1, 2, 3)) == [(1, "b")]
    assert len(index) == 2


def _wanted(*blocks: int, prompt: int = 1000) -> Wanted:
    return Wanted("m", "", prompt, 10, "t", blocks)


def _strategy() -> PrefixAffinity:
    strategy = PrefixAffinity(PrefixIndex(100))
    wanted = _wanted(1, 2, 3)
    first = strategy.choose(wanted, Pool([Candidate("b", 4, 0)]), 0.0)
    assert (first.branch, first.reason) == (Branch.NO_KEY, Reason.LEAST)
    strategy.placed(wanted, first, 0.0)
    return strategy


def test_what_was_sent_somewhere_goes_there_again_and_counts_less() -> None:
    pool = Pool([Candidate("a", 4, 0, prefill_ms=1), Candidate("b", 4, 50, prefill_ms=1)])
    decision = _strategy().choose(_wanted(1, 2, 3, 4), pool, 0.0)
    assert (decision.worker, decision.branch, decision.reason) == ("b", Branch.HOME, Reason.PREFIX)
    assert decision.tokens == 1000 - 3 * 64 + 10


def test_a_wait_that_costs_more_than_the_prefix_saves_goes_elsewhere() -> None:
    pool = Pool([Candidate("a", 4, 0, prefill_ms=1), Candidate("b", 4, 50, prefill_ms=1, wait_ms=200)])
    decision = _strategy().choose(_wanted(1, 2, 3), pool, 0.0)
    assert (decision.worker, decision.branch, decision.reason) == ("a", Branch.SPILL, Reason.LEAST)
    pool.put(Candidate("b", 4, 50, prefill_ms=1, wait_ms=190))
    assert _strategy().choose(_wanted(1, 2, 3), pool, 0.0).worker == "b"


def test_a_closed_or_full_holder_gets_nothing() -> None:
    strategy = _strategy()
    closed = Pool([Candidate("a", 4, 0), Candidate("b", 4, 0, open=False)])
    assert strategy.choose(_wanted(1, 2, 3), closed, 0.0).branch == Branch.MOVED
    full = Pool([Candidate("a", 4, 0), Candidate("b", 4, 0, full=EVERY_LANE)])
    assert strategy.choose(_wanted(1, 2, 3), full, 0.0).branch == Branch.SPILL
    assert strategy.choose(_wanted(1), Pool(), 0.0).branch == Branch.NONE_ELIGIBLE


def test_a_worker_that_is_gone_is_forgotten() -> None:
    strategy = _strategy()
    strategy.keep_only({"m"}, {"a", "b"})
    strategy.keep_only({"m"}, {"a"})
    pool = Pool([Candidate("a", 4, 0), Candidate("b", 4, 0)])
    assert strategy.choose(_wanted(1, 2, 3), pool, 0.0).branch == Branch.NO_KEY
