from benchmarks.clients.plan import Plan


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
