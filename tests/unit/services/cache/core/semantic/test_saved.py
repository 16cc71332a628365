"""What is known of a tenant goes through bytes and back."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from services.cache.core.decide import Comparison
from services.cache.core.features import NAMES
from services.cache.core.labels import Label, Row
from services.cache.core.records import Damaged, sealed, unsealed
from services.cache.core.semantic.options import SemanticOptions
from services.cache.core.semantic.saved import adopt_standing, pack_standing
from services.cache.core.semantic.standing import Ledger, Standing

OPTIONS = SemanticOptions("budget", True, 0.01, 0.05, 0.3, False, ())


def fresh() -> Standing:
    return Standing(OPTIONS, Ledger())


def learned() -> Standing:
    standing = fresh()
    draw = np.random.default_rng(1)
    for number in range(400):
        row = Row(tuple(draw.random(len(NAMES)).tolist()), bytes([number % 90])) if number % 2 else None
        standing.pooled.add(
            Label(0.9 + 0.0002 * number, number % 3 > 0 or row is None, 0.5, row, beside=number % 5 == 0)
        )
    for number in range(100):
        standing.compared(Comparison("lately", 0.9 + number / 1000, 0.5, None, audit=True), number % 4 > 0)
        standing.compared(Comparison(f"{number}", 0.9 + number / 1000, 0.5, None), number % 3 == 0)
    standing.compared(Comparison("bad", 0.95, 0.5, None), right=False)
    for _ in range(400):
        standing.pooled.request()
    standing.wrong("entry", b"asked", b"stored", 0.95)
    for asked in (b"one", b"two"):
        standing.wrong("evicted", asked, b"stored", 0.9)
    assert standing.verifier.fit(standing.pooled.labels)
    standing.ledger.asked, standing.ledger.hits = 9, 4
    standing.ledger.refused["numbers"] = 2
    return standing


def test_a_standing_goes_on_where_it_was() -> None:
    before, after = learned(), fresh()
    adopt_standing(after, pack_standing(before, "e5"), "e5")
    assert after.threshold == before.threshold
    assert after.pooled.curve() == before.pooled.curve()
    assert after.wrong_hits.floor("entry") == before.wrong_hits.floor("entry")
    assert after.wrong_hits.is_denied(b"stored", b"two")
    row = Row(tuple(0.5 for _ in NAMES), b"\x07")
    assert after.verifier.estimate_of(row) == before.verifier.estimate_of(row)
    assert after.pooled.allowance.balance == before.pooled.allowance.balance
    assert after.ledger.served_wrong == before.ledger.served_wrong == 25
    assert after.trust.is_due("bad")
    now = after.pooled.requests
    shifts = [standing.staleness.shift("never seen", now) for standing in (before, after)]
    assert shifts[0] < -0.01
    assert shifts[1] == pytest.approx(shifts[0], abs=0.003)
    assert (after.ledger.asked, after.ledger.hits, after.ledger.refused) == (9, 4, {"numbers": 2})
    for standing in (before, after):
        for _ in range(50):
            standing.pooled.request()
    assert after.threshold == before.threshold


def test_another_encoders_numbers_are_left_behind_and_denied_pairs_are_not() -> None:
    after = fresh()
    adopt_standing(after, pack_standing(learned(), "e5"), "another")
    assert after.threshold == fresh().threshold
    assert after.pooled.labels == ()
    assert after.pooled.allowance.balance == fresh().pooled.allowance.balance
    assert not after.trust.is_due("bad")
    assert after.wrong_hits.floor("entry") is None
    assert not after.verifier.trained
    assert after.wrong_hits.is_denied(b"one", b"stored")


def test_damaged_bytes_change_nothing() -> None:
    value = pack_standing(learned(), "e5")
    for bad in (b"", value[:-1], value[:30] + b"x" + value[31:]):
        after = fresh()
        with pytest.raises(Damaged):
            adopt_standing(after, bad, "e5")
        assert after.pooled.labels == ()
        assert after.wrong_hits.records() == ({}, [])


def test_what_an_earlier_version_saved_is_taken_and_the_account_begins_anew() -> None:
    now = msgspec.msgpack.decode(unsealed(pack_standing(learned(), "e5")))
    before, after = sealed(msgspec.msgpack.encode(now[:11])), fresh()
    adopt_standing(after, before, "e5")
    assert after.pooled.curve() == learned().pooled.curve()
    assert after.pooled.allowance.balance == fresh().pooled.allowance.balance
