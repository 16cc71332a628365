"""Branches of the ring's decision, one by one."""

from __future__ import annotations

from services.router.core.ring import Branch, Candidate, Decision, Ring, bound, select

RING = Ring(["a", "b", "c"])
KEY = "0123456789abcdef"
ORDER = list(RING.walk(KEY))


def _candidates(**changed: Candidate) -> dict[str, Candidate]:
    return {name: Candidate(name, 4, 0) for name in ORDER} | changed


def test_a_walk_visits_every_worker_once() -> None:
    assert sorted(ORDER) == ["a", "b", "c"]
    assert list(Ring(()).walk(KEY)) == []


def test_home_takes_what_is_its_own() -> None:
    assert select(RING, KEY, 100, _candidates()) == Decision(ORDER[0], Branch.HOME)


def test_home_over_its_bound_spills_to_the_next_clockwise() -> None:
    home = ORDER[0]
    decision = select(RING, KEY, 100, _candidates(**{home: Candidate(home, 4, 301)}))
    assert decision == Decision(ORDER[1], Branch.SPILL)


def test_the_floor_lets_a_quiet_mesh_keep_four_requests_at_home() -> None:
    home = ORDER[0]
    assert bound(100, 300, 1 / 3, 1.25, 4) == 400
    decision = select(RING, KEY, 100, _candidates(**{home: Candidate(home, 4, 300)}))
    assert decision == Decision(home, Branch.HOME)


def test_a_full_queue_spills() -> None:
    home = ORDER[0]
    assert select(RING, KEY, 1, _candidates(**{home: Candidate(home, 4, 0, full=True)})).branch == Branch.SPILL


def test_a_home_that_takes_no_work_moves() -> None:
    home = ORDER[0]
    decision = select(RING, KEY, 1, _candidates(**{home: Candidate(home, 4, 0, open=False)}))
    assert decision == Decision(ORDER[1], Branch.MOVED)


def test_workers_of_other_models_are_walked_past() -> None:
    candidates = _candidates()
    del candidates[ORDER[0]]
    assert select(RING, KEY, 1, candidates) == Decision(ORDER[1], Branch.HOME)


def test_without_a_key_the_least_loaded_by_weight_takes_it() -> None:
    candidates = {"a": Candidate("a", 1, 50), "b": Candidate("b", 8, 80), "c": Candidate("c", 1, 20)}
    assert select(RING, "", 1, candidates) == Decision("b", Branch.NO_KEY)


def test_when_all_are_over_the_least_loaded_takes_it() -> None:
    # Two workers of ten to one: mine is large against what the small share allows.
    ring = Ring(["big", "small"])
    candidates = {"big": Candidate("big", 10, 10_000), "small": Candidate("small", 1, 5_000)}
    decision = select(ring, KEY, 1000, candidates, factor=1.01, floor=1)
    assert decision.worker == "big"


def test_nobody_open_and_everybody_full_are_told_apart() -> None:
    closed = {name: Candidate(name, 1, 0, open=False) for name in "abc"}
    full = {name: Candidate(name, 1, 0, full=True) for name in "abc"}
    assert select(RING, KEY, 1, closed) == Decision("", Branch.NONE_ELIGIBLE, full=False)
    assert select(RING, KEY, 1, full) == Decision("", Branch.NONE_ELIGIBLE, full=True)
    assert select(RING, KEY, 1, {}) == Decision("", Branch.NONE_ELIGIBLE, full=False)
