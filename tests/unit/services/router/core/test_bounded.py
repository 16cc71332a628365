"""Branches of the bounded decision, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from services.router.core.bounded import Bounded, bound
from services.router.core.decision import Branch, Candidate, Decision, Reason, Wanted
from services.router.core.pace import Pace
from services.router.core.pool import Pool
from services.router.core.queues import EVERY_LANE
from services.router.core.ring import Ring
from services.router.core.sessions import Sessions, Stay

KEY = "0123456789abcdef"
ORDER = list(Ring(["a", "b", "c"]).walk(KEY))
HOME, SECOND, THIRD = ORDER


def _strategy(*, per_s: float = 10, factor: float = 1.25, floor: int = 4) -> Bounded:
    return Bounded(Ring, Sessions(1000, 600), Pace(per_s), factor=factor, floor=floor)


def _pool(**changed: Candidate) -> Pool:
    return Pool(({name: Candidate(name, 4, 0, prefill_ms=1) for name in ORDER} | changed).values())


def _wanted(tokens: int = 100, *, session: str = KEY, barred: frozenset[str] = frozenset()) -> Wanted:
    return Wanted("m", session, tokens - 1, 1, "t", barred=barred)


def _one(pool: Pool, wanted: Wanted | None = None, **options: float) -> Decision:
    return _strategy(**options).choose(wanted or _wanted(), pool, 0.0)  # type: ignore[arg-type]


def test_home_takes_what_is_its_own() -> None:
    assert _one(_pool()) == Decision(HOME, Branch.HOME, Reason.FIRST, HOME, 100)


def test_home_over_its_bound_spills_to_the_next_clockwise() -> None:
    decision = _one(_pool(**{HOME: Candidate(HOME, 4, 301)}))
    assert decision == Decision(SECOND, Branch.SPILL, Reason.OVER_BOUND, HOME, 100)


def test_the_floor_lets_a_quiet_mesh_keep_four_requests_at_home() -> None:
    assert bound(100, 100, 300, 1 / 3, 1.25, 4) == 400
    assert _one(_pool(**{HOME: Candidate(HOME, 4, 300)})).branch == Branch.HOME


def test_a_turn_whose_prompt_is_in_kv_is_not_sent_away_for_a_small_load() -> None:
    strategy, first = _strategy(), Wanted("m", KEY, 2000, 50, "t")
    strategy.placed(first, strategy.choose(first, _pool(), 0.0), 0.0)
    again = Wanted("m", KEY, 2100, 50, "t")
    # 100 tokens in all, against 3,000 of others there: less than four requests of 2,150 as they would count elsewhere.
    decision = strategy.choose(again, _pool(**{HOME: Candidate(HOME, 4, 3000)}), 1.0)
    assert (decision.worker, decision.tokens) == (HOME, 100)
    assert strategy.choose(again, _pool(**{HOME: Candidate(HOME, 4, 8501)}), 1.0).worker == SECOND


def test_a_full_queue_spills() -> None:
    decision = _one(_pool(**{HOME: Candidate(HOME, 4, 0, full=EVERY_LANE)}))
    assert (decision.branch, decision.reason) == (Branch.SPILL, Reason.QUEUE_FULL)


def test_a_full_kv_cache_spills_and_is_the_reason() -> None:
    decision = _one(_pool(**{HOME: Candidate(HOME, 4, 0, full=EVERY_LANE, kv_full=True)}))
    assert (decision.branch, decision.reason) == (Branch.SPILL, Reason.KV_FULL)


def test_a_home_that_takes_no_work_moves() -> None:
    decision = _one(_pool(**{HOME: Candidate(HOME, 4, 0, open=False)}))
    assert decision == Decision(SECOND, Branch.MOVED, Reason.CLOSED, HOME, 100)


def test_a_barred_worker_gets_nothing_as_if_it_were_closed() -> None:
    decision = _one(_pool(), _wanted(barred=frozenset({HOME})))
    assert (decision.worker, decision.branch, decision.reason) == (SECOND, Branch.MOVED, Reason.CLOSED)
    assert _one(_pool(), _wanted(barred=frozenset(ORDER))).branch == Branch.NONE_ELIGIBLE


def test_without_a_key_the_least_loaded_by_weight_takes_it() -> None:
    pool = Pool([Candidate("a", 1, 50), Candidate("b", 8, 80), Candidate("c", 1, 20)])
    decision = _one(pool, _wanted(session=""))
    assert (decision.worker, decision.branch) == ("b", Branch.NO_KEY)


def test_when_all_are_over_the_least_loaded_takes_it() -> None:
    # Two workers of ten to one: mine is large against what the small share allows.
    pool = Pool([Candidate("big", 10, 13_700), Candidate("small", 1, 500)])
    decision = _one(pool, _wanted(1000), factor=1.01, floor=1)
    assert (decision.worker, decision.reason) == ("small", Reason.LEAST)


def test_nobody_open_and_everybody_full_are_told_apart() -> None:
    closed = _pool(**{name: Candidate(name, 1, 0, open=False) for name in ORDER})
    full = _pool(**{name: Candidate(name, 1, 0, full=EVERY_LANE) for name in ORDER})
    for pool, told in ((closed, False), (full, True), (Pool(), False)):
        decision = _one(pool)
        assert (decision.worker, decision.branch, decision.full) == ("", Branch.NONE_ELIGIBLE, told)


def test_a_walk_that_finds_no_room_for_long_ends_at_the_least_loaded() -> None:
    # One worker of a hundred has room, and it need not be among the first of the walk.
    pool = Pool([Candidate(f"w{number}", 1, 1000 if number else 0) for number in range(100)])
    for session in range(20):
        assert _one(pool, _wanted(100, session=f"s{session}"), factor=1.01, floor=1).worker == "w0"


class _Watched(Pool):
    """Counts how often a worker is looked at."""

    looks = 0

    def __getitem__(self, worker: str) -> Candidate:
        self.looks += 1
        return super().__getitem__(worker)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("nobody needs all of them")


def test_a_decision_over_a_thousand_workers_looks_at_a_few() -> None:
    strategy, names = _strategy(), [f"w{number}" for number in range(1000)]
    pool = _Watched(Candidate(name, 4, 4000 if number % 10 else 0) for number, name in enumerate(names))
    looks = []
    for session in range(200):
        before, wanted = pool.looks, _wanted(300, session=f"s{session}")
        decision = strategy.choose(wanted, pool, 0.0)
        strategy.placed(wanted, decision, 0.0)
        pool.put(Candidate(decision.worker, 4, 1000))
        looks.append(pool.looks - before)
    assert max(looks) <= 40
    assert sum(looks) / len(looks) < 15


# --- Sessions that are elsewhere


def _spilled(strategy: Bounded, prompt: int = 999, output: int = 1) -> Wanted:
    """A session of which SECOND has 1,000 tokens and HOME has none."""
    wanted = Wanted("m", KEY, prompt, output, "t")
    decision = strategy.choose(wanted, _pool(**{HOME: Candidate(HOME, 4, 0, full=EVERY_LANE)}), 0.0)
    assert (decision.worker, decision.branch) == (SECOND, Branch.SPILL)
    strategy.placed(wanted, decision, 0.0)
    return wanted


def test_a_spilled_session_stays_while_its_kv_is_worth_more_than_the_walk_home() -> None:
    strategy = _strategy()
    _spilled(strategy)
    # 1,000 tokens of the next prompt are in KV there: 1,000 ms at home.
    wanted = Wanted("m", KEY, 1100, 1, "t")
    decision = strategy.choose(wanted, _pool(), 1.0)
    assert decision == Decision(SECOND, Branch.SPILL, Reason.KEPT, HOME, 101)


def test_a_queue_there_can_outweigh_the_kv() -> None:
    strategy = _strategy()
    _spilled(strategy)
    wanted = Wanted("m", KEY, 1100, 1, "t")
    waits = Candidate(SECOND, 4, 0, wait_ms=960, prefill_ms=1)
    decision = strategy.choose(wanted, _pool(**{SECOND: waits}), 1.0)
    assert (decision.worker, decision.reason) == (HOME, Reason.RETURNED), (
        "40 ms are less than the 50 that home is worth"
    )
    waits = Candidate(SECOND, 4, 0, wait_ms=940, prefill_ms=1)
    assert strategy.choose(wanted, _pool(**{SECOND: waits}), 1.0).worker == SECOND


def test_a_fast_engine_makes_the_walk_home_cheap() -> None:
    strategy = _strategy()
    _spilled(strategy)
    fast = {name: Candidate(name, 4, 0, prefill_ms=0.02) for name in ORDER}
    assert strategy.choose(Wanted("m", KEY, 1100, 1, "t"), _pool(**fast), 1.0).reason == Reason.RETURNED


def test_kv_is_forgotten_after_its_time() -> None:
    strategy = _strategy()
    _spilled(strategy)
    decision = strategy.choose(Wanted("m", KEY, 1100, 1, "t"), _pool(), 601.0)
    assert decision == Decision(HOME, Branch.HOME, Reason.FIRST, HOME, 1101)


def test_where_it_spilled_to_may_have_no_room_either() -> None:
    strategy = _strategy()
    _spilled(strategy)
    decision = strategy.choose(
        Wanted("m", KEY, 1100, 1, "t"), _pool(**{SECOND: Candidate(SECOND, 4, 0, full=EVERY_LANE)}), 1.0
    )
    assert decision.worker == HOME
    gone = Pool(Candidate(name, 4, 0) for name in (HOME, THIRD))
    assert strategy.choose(Wanted("m", KEY, 1100, 1, "t"), gone, 1.0).worker == HOME


def test_another_tenants_and_another_models_session_of_the_same_key_is_another() -> None:
    strategy = _strategy()
    _spilled(strategy)
    assert strategy.choose(Wanted("m", KEY, 1100, 1, "other"), _pool(), 1.0).worker == HOME
    assert strategy.choose(Wanted("n", KEY, 1100, 1, "t"), _pool(), 1.0).worker == HOME


def test_what_another_router_noted_counts_where_nothing_is_known() -> None:
    strategy = _strategy()
    wanted = Wanted("m", KEY, 1100, 1, "t")
    assert not strategy.knows(wanted, 1.0)
    strategy.learn(wanted, Stay(HOME, THIRD, 1000, 0.5))
    assert strategy.knows(wanted, 1.0)
    assert strategy.choose(wanted, _pool(), 1.0).worker == THIRD


# --- Membership


def _moving(strategy: Bounded, sessions: int) -> tuple[Pool, list[Wanted]]:
    """A pool that `w-new` has joined, and the sessions that lived on the old ones and belong to it now."""
    pool = Pool(Candidate(f"w{number}", 1000, 0, prefill_ms=1) for number in range(4))
    wanted = [Wanted("m", f"session-{number}", 1000, 10, "t") for number in range(sessions)]
    for one in wanted:
        strategy.placed(one, strategy.choose(one, pool, 0.0), 0.0)
    pool.replace(Candidate(name, 1000, 0, prefill_ms=1) for name in ("w0", "w1", "w2", "w3", "w-new"))
    ring = Ring(pool)
    return pool, [one for one in wanted if next(ring.walk(one.session)) == "w-new"]


def test_e2_sessions_move_to_a_new_worker_at_a_paced_rate_and_others_stay_with_their_kv() -> None:
    strategy = _strategy(per_s=5)
    pool, movers = _moving(strategy, 500)
    assert 60 < len(movers) < 140, "a fifth belongs to the new one"
    moved, now = 0, 1.0
    for second in range(10):
        for one in movers:
            decision = strategy.choose(one, pool, now)
            strategy.placed(one, decision, now)
            if decision.reason == Reason.PACED_IN:
                moved += 1
                assert (decision.worker, decision.branch) == ("w-new", Branch.HOME)
            elif decision.worker != "w-new":
                assert (decision.branch, decision.reason) == (Branch.MOVED, Reason.WAITS_TO_MOVE)
                assert decision.tokens == 11, "its KV is there: one token is computed, ten are made"
        assert moved == 5 * (second + 1)
        now += 1.0


def test_homes_are_told_ahead_those_of_the_latest_turns_first() -> None:
    strategy = _strategy()
    pool, _ = _moving(strategy, 20)
    ring = Ring(pool.sizes)
    homes = list(strategy.homes({"m": pool}.get, 15))
    assert [home.session for home in homes] == [f"session-{number}" for number in range(19, 4, -1)]
    assert all(home.worker == next(ring.walk(home.session)) for home in homes)
    assert list(strategy.homes({}.get, 15)) == []


def test_who_must_move_is_not_held_back() -> None:
    strategy = _strategy(per_s=1)
    pool, movers = _moving(strategy, 300)
    for name in ("w0", "w1", "w2", "w3"):
        pool.put(Candidate(name, 1000, 0, open=False))
    assert {strategy.choose(one, pool, 1.0).worker for one in movers} == {"w-new"}


def test_a_session_that_waits_to_move_still_does_so_after_home_had_no_room() -> None:
    strategy = _strategy(per_s=1)
    pool, movers = _moving(strategy, 100)
    one = movers[0]
    pool.put(Candidate("w-new", 1000, 0, full=EVERY_LANE))
    decision = strategy.choose(one, pool, 1.0)
    assert decision.reason == Reason.KEPT
    strategy.placed(one, decision, 1.0)
    pool.put(Candidate("w-new", 1000, 0))
    assert strategy.choose(one, pool, 2.0).reason == Reason.PACED_IN


def test_forgotten_models_and_workers_leave_nothing() -> None:
    strategy = _strategy()
    strategy.placed(_wanted(), strategy.choose(_wanted(), _pool(), 0.0), 0.0)
    strategy.keep_only(set(), set())
    assert strategy._orders == {}


def _busy(worker: str, ahead: int) -> Candidate:
    """All its slots are in use, and one comes free every 100 ms."""
    return Candidate(worker, 16, 0, prefill_ms=1, ahead=ahead, turnover_ms=100)


def test_urgent_work_goes_where_most_slots_are_free_for_it_when_home_has_none() -> None:
    wanted = _wanted(50)
    pool = _pool(**{HOME: _busy(HOME, 0), SECOND: _busy(SECOND, 1), THIRD: _busy(THIRD, 2)})
    decision = _one(pool, wanted)
    assert (decision.worker, decision.branch, decision.reason) == (THIRD, Branch.SPILL, Reason.NO_SLOT)
    assert _one(_pool(**{HOME: _busy(HOME, 1), THIRD: _busy(THIRD, 2)}), wanted).worker == HOME
    # Where nobody has one it waits at home, and who is not urgent waits there anyway.
    assert _one(_pool(**{name: _busy(name, 0) for name in ORDER}), wanted).worker == HOME
    assert _one(pool, replace(wanted, lane="silver")).worker == HOME


def test_a_slot_elsewhere_is_not_worth_more_prefill_than_the_wait_at_home() -> None:
    strategy, first = _strategy(), Wanted("m", KEY, 2000, 50, "t")
    strategy.placed(first, strategy.choose(first, _pool(), 0.0), 0.0)
    again = Wanted("m", KEY, 2100, 50, "t")
    # At home 50 of 2,100 tokens are new, and a slot comes in 100 ms: elsewhere all are computed, 2,100 ms.
    pool = _pool(**{HOME: _busy(HOME, 0), SECOND: _busy(SECOND, 2), THIRD: _busy(THIRD, 2)})
    assert strategy.choose(again, pool, 1.0).worker == HOME
    # With thirty urgent ones in front of it, it is.
    pool = _pool(**{HOME: _busy(HOME, -30), SECOND: _busy(SECOND, 2), THIRD: _busy(THIRD, 1)})
    assert strategy.choose(again, pool, 1.0).worker == SECOND
    assert strategy.choose(replace(again, barred=frozenset({SECOND})), pool, 1.0).worker == THIRD
