"""Whatever comes in which order: tokens neither vanish nor appear, and no more runs than may (G1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamway.quota import Account, Demand
from streamway.tenancy import Quota

LEASE_MS = 1000.0
TOKENS, REQUESTS, SLOTS = 10_000, 100, 3
QUOTA = Quota(SLOTS, REQUESTS, TOKENS)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "reserve", "settle", "close", "abandon", "renew", "wait"]),
        st.integers(0, 9),
        st.integers(0, 4000),
        st.integers(0, 6000),
    ),
    max_size=80,
)


@given(STEPS)
def test_g1_the_count_never_exceeds_the_limit_and_what_is_left_is_what_was_not_used(
    steps: list[tuple[str, int, int, int]],
) -> None:
    made, now, number = Account(LEASE_MS, 1.0), 0.0, 0
    tokens_left, requests_left = float(TOKENS), float(REQUESTS)
    live: dict[str, tuple[Demand, float]] = {}
    for step, which, tokens, actual in steps:
        chosen = list(live)[which % len(live)] if live else ""
        wanted = live[chosen][0] if live else Demand("none", "acme", "m", tokens, QUOTA)
        if step == "wait":
            # Who is not renewed meanwhile was killed.
            passed = float(tokens % 700)
            now += passed
            tokens_left = min(TOKENS, tokens_left + passed * TOKENS / 60_000)
            requests_left = min(REQUESTS, requests_left + passed * REQUESTS / 60_000)
            live = {id_: held for id_, held in live.items() if held[1] > now}
        elif step == "reserve":
            number += 1
            wanted = Demand(f"g{number}", "acme", "m", tokens, QUOTA)
            if made.reserve(wanted, now).refusal is None:
                live[wanted.id] = (wanted, now + LEASE_MS)
                tokens_left, requests_left = tokens_left - tokens, requests_left - 1
                assert tokens_left > -1e-3
                assert requests_left > -1e-3
            else:
                assert len(live) == SLOTS or tokens > tokens_left - 1e-3 or requests_left < 1 + 1e-3
        elif step == "renew":
            assert made.renew(wanted, now) or not chosen
            live |= {chosen: (wanted, now + LEASE_MS)} if chosen else {}
        else:
            back = {"settle": wanted.tokens - actual, "close": wanted.tokens, "abandon": 0}[step]
            ended = made.settle(wanted, int(step == "close"), back, now)
            assert ended == bool(chosen)
            if ended:
                del live[chosen]
                tokens_left = min(TOKENS, tokens_left + back)
                requests_left = min(REQUESTS, requests_left + int(step == "close"))
                assert not made.settle(wanted, 1, back, now), "exactly once"
        if step == "renew" and not chosen:
            made.settle(wanted, 0, 0, now)
        assert made.held(now) == len(live) <= SLOTS
        # No slot is left for the probe, so that it changes nothing.
        level = made.reserve(Demand("probe", "acme", "m", 0, Quota(0, REQUESTS, TOKENS)), now).levels[0]
        assert level.tokens == pytest.approx(tokens_left, abs=1e-3)
        assert level.requests == pytest.approx(requests_left, abs=1e-3)
