import pytest

from benchmarks.clients.plan import Plan, Record, Tally
from benchmarks.clients.websocket import text_of


def plan(repeated: float) -> Plan:
    return Plan("http://127.0.0.1", "m", streams=20, tokens=5, rounds=5, ramp_s=0.0, repeated=repeated)


def prompts(made: Plan) -> list[str]:
    return [made.prompt(stream, turn) for stream in range(made.streams) for turn in range(made.rounds)]


def test_no_prompt_is_asked_twice_unless_repeats_are_wanted() -> None:
    asked = prompts(plan(0.0))
    assert len(set(asked)) == len(asked) == 100


def test_the_share_of_repeats_is_that_of_the_plan() -> None:
    asked = prompts(plan(0.9))
    assert len(set(asked)) == 10 + 10


def test_a_prompt_is_as_long_as_asked() -> None:
    made = Plan("", "m", streams=1, tokens=1, rounds=1, ramp_s=0.0, prompt_bytes=12_000)
    assert len(made.prompt(0, 0)) == 12_000


def test_what_was_held_is_the_busiest_five_seconds_and_not_the_first_or_the_last() -> None:
    tally = Tally(tokens=1200)
    for second, text in enumerate([900, 10, 100, 100, 100, 100, 100, 10, 980]):
        tally.token(Record(0.0), 50.5 + second, text)
    assert tally.held() == pytest.approx(100 * 1200 / 2400)


def test_nothing_is_held_by_what_takes_less_time() -> None:
    tally = Tally(tokens=10)
    assert tally.held() == 0.0
    tally.token(Record(0.0), 3.0, 10)
    assert tally.held() == 0.0


def test_the_text_of_a_frame_is_counted_to_its_last_quote() -> None:
    assert text_of(rb'{"type":"token","text":"a \"q\" b","index":1}') == len(rb"a \"q\" b")
    assert text_of(b'{"type":"token"}') == 0
