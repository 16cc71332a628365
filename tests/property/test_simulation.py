"""Invariants of the simulated engine, over virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamway.simulation.engine import Begun, Broken, Ended, Event, SimulatedEngine
from streamway.simulation.kv import KVCache, block_names
from streamway.simulation.request import Refused, SimulationRequest, read
from streamway.simulation.sequence import Piece
from streamway.simulation.settings import SimulationSettings
from streamway.simulation.text import AnswerText, StopMatcher

SMALL = SimulationSettings(slots=3, kv_tokens=2048, context_tokens=1024, prefill_chunk_tokens=64)


def asked(prompt: str = "p", settings: SimulationSettings = SMALL, **body: Any) -> SimulationRequest:
    made = {"messages": [{"role": "user", "content": prompt}], **body}
    return read(json.dumps(made).encode(), settings)


def run(engine: SimulatedEngine, now: float = 0.0) -> tuple[list[Event], float]:
    """Steps until nothing is left to do."""
    events: list[Event] = []
    while True:
        made, wake = engine.step(now)
        events += made
        if wake is None:
            return events, now
        assert wake >= now
        now = wake


def text_of(events: list[Event], choice: int = 0) -> str:
    return "".join(event.text for event in events if isinstance(event, Piece) and event.choice == choice)


CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "prompt": st.text(st.sampled_from("ab 河"), max_size=400),
            "max_tokens": st.integers(1, 40),
            "n": st.integers(1, 3),
            "seed": st.integers(0, 3),
            "streamway_faults": st.fixed_dictionaries(
                {
                    "stall_at_token": st.integers(0, 5),
                    "stall_s": st.sampled_from([0.0, 1.0]),
                    "slow_factor": st.sampled_from([1.0, 3.0]),
                    "first_token_delay_s": st.sampled_from([0.0, 0.5]),
                    "die_at_token": st.sampled_from([0, 0, 3]),
                    "answer_tokens": st.sampled_from([-1, -1, 0, 7]),
                }
            ),
        }
    ),
    max_size=8,
)


@given(CALLS, st.lists(st.integers(0, 7), max_size=4), st.sampled_from([0.0, 50.0]))
def test_every_call_ends_once_and_everything_is_given_back(
    calls: list[dict[str, Any]], cancels: list[int], rate: float
) -> None:
    settings = SMALL.model_copy(update={"tokens_per_s": rate})
    engine = SimulatedEngine(settings)
    running = [engine.submit(asked(settings=settings, **call)) for call in calls]
    events, now = engine.step(0.0)[0], 0.0
    events += engine.step(0.02)[0]
    cancelled = {id(running[number]) for number in cancels if number < len(running)}
    ended_before = {id(event.call) for event in events if isinstance(event, Ended | Broken)}
    for number in cancels:
        if number < len(running):
            engine.cancel(running[number])
    assert engine.running <= settings.slots
    rest, now = run(engine, 0.02)
    assert not [event for event in rest if id(event.call) in cancelled - ended_before]
    events += rest
    for call in running:
        ends = [event for event in events if isinstance(event, Ended | Broken) and event.call is call]
        assert len(ends) == (id(call) not in cancelled or id(call) in ended_before)
        own = [event for event in events if event.call is call]
        if own:
            assert isinstance(own[0], Begun)
        if ends and isinstance(ends[0], Ended):
            finished = [event.choice for event in own if isinstance(event, Piece) and event.finish_reason]
            assert sorted(finished) == list(range(len(call.request.choices)))
            assert call.completion_tokens <= sum(plan.tokens for plan in call.request.choices)
    assert engine.running == engine.waiting == 0
    assert engine.kv_used == 0.0
    assert now < 3600


@given(CALLS)
def test_the_same_calls_give_the_same_events_at_the_same_times(calls: list[dict[str, Any]]) -> None:
    def told() -> list[tuple[float, str]]:
        engine = SimulatedEngine(SMALL)
        for call in calls:
            engine.submit(asked(**call))
        rows, now = [], 0.0
        while True:
            events, wake = engine.step(now)
            rows += [(now, type(event).__name__ + getattr(event, "text", "")) for event in events]
            if wake is None:
                return rows
            now = wake

    assert told() == told()


@given(st.integers(0, 2**40), st.integers(2, 60), st.integers(0, 60), st.text(max_size=30))
def test_an_answer_goes_on_from_any_character(seed: int, tokens: int, cut: int, prompt: str) -> None:
    """Also from the middle of a token, and with another engine."""
    whole_events, _ = _answer(prompt, seed, tokens)
    whole = text_of(whole_events)
    cut = min(cut, len(whole))
    partial = whole[:cut]
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": partial}]
    done = AnswerText(asked(prompt, seed=seed).prompt, seed, 0, SMALL.answer_tokens).locate(partial, 1000)
    assert done is not None
    if tokens - done.index < 1:
        return
    engine = SimulatedEngine(SMALL)
    engine.submit(asked(messages=messages, seed=seed, max_tokens=tokens - done.index))
    events, _ = run(engine)
    assert partial + text_of(events) == whole


def _answer(prompt: str, seed: int, tokens: int, **body: Any) -> tuple[list[Event], float]:
    engine = SimulatedEngine(SMALL)
    engine.submit(asked(prompt, seed=seed, max_tokens=tokens, **body))
    return run(engine)


def test_an_answer_without_limit_goes_on_to_its_natural_end() -> None:
    engine = SimulatedEngine(SMALL)
    engine.submit(asked("hello"))
    whole = text_of(run(engine)[0])
    engine.submit(asked(messages=[{"role": "user", "content": "hello"}, {"role": "assistant", "content": whole[:50]}]))
    events, _ = run(engine, 1000.0)
    assert whole[:50] + text_of(events) == whole
    engine.submit(asked(messages=[{"role": "user", "content": "hello"}, {"role": "assistant", "content": whole}]))
    events, _ = run(engine, 2000.0)
    assert text_of(events) == ""
    assert [event.finish_reason for event in events if isinstance(event, Piece)] == ["stop"]


def test_an_assistant_turn_of_somebody_else_is_part_of_the_prompt() -> None:
    engine = SimulatedEngine(SMALL)
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "I never said that"}]
    engine.submit(asked(messages=messages, max_tokens=5))
    assert text_of(run(engine)[0])


def test_prompt_and_seed_change_the_text_and_the_limit_does_not() -> None:
    base = text_of(_answer("a", 0, 20)[0])
    assert text_of(_answer("a", 1, 20)[0]) != base
    assert text_of(_answer("b", 0, 20)[0]) != base
    assert text_of(_answer("a", 0, 30)[0]).startswith(base)


@given(st.text("ab", max_size=40), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_a_stop_string_is_found_however_the_text_is_cut(text: str, stops: list[str], draw: st.DataObject) -> None:
    matcher = StopMatcher(tuple(stops))
    places = sorted(draw.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    shown, stopped = "", False
    for start, end in zip([0, *places], [*places, len(text)], strict=True):
        part, stopped = matcher.feed(text[start:end])
        shown += part
        if stopped:
            break
    if not stopped:
        shown += matcher.end()
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    assert stopped == bool(ends)
    # The stop string that is complete first wins; of those that end at once, or within one piece, the earliest begin.
    assert shown == text if not stopped else any(shown == text[: text.index(stop)] for stop in stops if stop in text)
    assert not any(stop in shown for stop in stops)


def test_a_decode_step_takes_what_the_settings_say() -> None:
    settings = SimulationSettings()
    engine = SimulatedEngine(settings)
    for number in range(10):
        engine.submit(asked(f"prompt {number}", settings, max_tokens=101))
    events, now = run(engine)
    assert sum(isinstance(event, Piece) for event in events) == 1010
    prefill = 10 * asked("prompt 0", settings).prompt_tokens / 8000
    assert now == pytest.approx(prefill + 100 * (0.006 + 0.00035 * 10), rel=0.01)


def test_a_long_prompt_is_computed_in_chunks_beside_running_answers() -> None:
    settings = SimulationSettings()
    engine = SimulatedEngine(settings)
    engine.submit(asked("first", settings, max_tokens=1000))
    engine.step(0.0)
    engine.step(0.1)
    engine.submit(asked("x" * 4 * 20_000, settings, max_tokens=1))
    events: list[Event] = []
    now = 0.1
    while not any(isinstance(event, Ended) for event in events):
        made, wake = engine.step(now)
        events += made
        assert wake is not None
        now = wake
    # 20,000 tokens at 8,000 a second: 2.5 s in ten chunks, each with one token of the running answer.
    assert 2.5 < now - 0.1 < 2.7
    assert 9 <= sum(isinstance(event, Piece) for event in events) <= 12


def test_a_fixed_rate_does_not_depend_on_the_load() -> None:
    settings = SimulationSettings(tokens_per_s=20)
    engine = SimulatedEngine(settings)
    for number in range(200):
        engine.submit(asked(f"prompt {number}", settings, max_tokens=41))
    _, now = run(engine)
    assert now == pytest.approx(2.0, abs=0.01)


def test_the_longer_conversation_finds_the_shorter_one_in_the_kv_cache() -> None:
    engine = SimulatedEngine(SMALL)
    first = engine.submit(asked("tell me " * 30, max_tokens=20))
    events, now = run(engine)
    assert first.counted.cached == 0
    turns = [
        {"role": "user", "content": "tell me " * 30},
        {"role": "assistant", "content": text_of(events)},
        {"role": "user", "content": "more"},
    ]
    second = engine.submit(asked(messages=turns, max_tokens=5))
    run(engine, now)
    assert second.counted.cached >= first.counted.prompt - 16
    assert second.counted.cached % 16 == 0


def test_kv_pressure_makes_calls_wait_and_not_fail() -> None:
    settings = SMALL.model_copy(update={"kv_tokens": 512, "slots": 8})
    engine = SimulatedEngine(settings)
    for number in range(8):
        engine.submit(asked(f"{number}" * 800, settings, max_tokens=20))
    engine.step(0.0)
    assert engine.running == 2
    assert engine.waiting == 6
    assert engine.kv_used > 0.8
    events, _ = run(engine)
    assert sum(isinstance(event, Ended) for event in events) == 8


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 4)), max_size=30))
def test_the_kv_cache_never_holds_more_than_it_has(steps: list[tuple[int, int, int]]) -> None:
    cache = KVCache(10)
    held: list[tuple[list[int], int]] = []
    for kind, size, unnamed in steps:
        names = block_names(bytes([kind]) * 64 * size, 16)
        if kind == 3 and held:
            last_names, last_unnamed = held.pop()
            cache.give_back(last_names, last_unnamed, last_names)
        elif cache.take(names, unnamed):
            held.append((names, unnamed))
            assert cache.matched(names) == len(names)
        assert 0.0 <= cache.used_ratio <= 1.0
    for names, unnamed in held:
        cache.give_back(names, unnamed, [])
    assert cache.held == 0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", ""),
        (b"[]", ""),
        (b'{"messages": []}', "messages"),
        (b'{"messages": [{"content": "x"}]}', "messages"),
        (b'{"messages": [{"role": "user"}], "max_tokens": 0}', "max_tokens"),
        (b'{"messages": [{"role": "user"}], "n": 99}', "n"),
        (b'{"messages": [{"role": "user"}], "model": "other"}', "model"),
        (b'{"messages": [{"role": "user"}], "tools": [{}], "tool_choice": "required"}', "tools"),
        (b'{"messages": [{"role": "user"}], "streamway_faults": {"explode": true}}', "streamway_faults"),
    ],
)
def test_wrong_bodies_are_refused_with_the_field(body: bytes, field: str) -> None:
    with pytest.raises(Refused) as refused:
        read(body, SMALL)
    assert refused.value.field == field
    assert 400 <= refused.value.status < 500
