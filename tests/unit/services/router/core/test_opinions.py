"""How much feedback each tenant may give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.core.opinions import Opinions
from streamway.errors import TooMuchFeedback


def _taken(opinions: Opinions, tenant: str, now: float) -> bool:
    try:
        opinions.take(tenant, now)
    except TooMuchFeedback:
        return False
    return True


def test_a_tenant_that_gives_too_much_is_told_when_to_come_back_and_others_are_not_affected() -> None:
    opinions = Opinions(per_minute=2)
    assert [_taken(opinions, "acme", 0.0) for _ in range(3)] == [True, True, False]
    assert _taken(opinions, "bolt", 0.0)
    with pytest.raises(TooMuchFeedback) as refused:
        opinions.take("acme", 10.0)
    assert refused.value.retry_after_s == pytest.approx(20.0)
    assert _taken(opinions, "acme", 30.5)


def test_what_is_remembered_is_bounded_and_the_longest_silent_tenant_goes() -> None:
    opinions = Opinions(per_minute=1, most_tenants=2)
    assert all(_taken(opinions, tenant, 0.0) for tenant in ("a", "b", "c"))
    assert len(opinions) == 2
    assert not _taken(opinions, "c", 0.0)
    assert _taken(opinions, "a", 0.0), "forgotten"


@given(st.integers(1, 20), st.lists(st.floats(0, 30), max_size=80))
def test_never_more_than_a_full_bucket_and_what_came_since(per_minute: int, pauses: list[float]) -> None:
    opinions, now, taken = Opinions(per_minute), 0.0, 0
    for pause in pauses:
        now += pause
        taken += _taken(opinions, "acme", now)
        assert taken <= per_minute + now * per_minute / 60 + 1e-6
