"""The journal's protocol under random schedules, against a real Valkey; and each of its rules taken out, which must show.

Every run goes through 900 schedules, with FULL=1 through 1500. `SCHEDULES=100000 pytest tests/property/test_journal_protocol.py`
runs longer, `FIRST_SEED=…` elsewhere. A schedule goes the same way each time it is run with the same seed, as long as the code
under test does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from streamway.journal import functions
from streamway.journal.channel import Channel
from streamway.journal.cursor import Cursor
from streamway.journal.entries import Entry, Kind
from tests.support.journal_model.actors import Build
from tests.support.journal_model.mutants import MUTANTS
from tests.support.journal_model.schedule import Outcome, run, shrink
from tests.support.journal_model.store import ModelStore
from tests.support.valkey_server import ValkeyServer

SCHEDULES = int(os.environ.get("SCHEDULES", "1500" if os.environ.get("FULL") == "1" else "900"))
FIRST_SEED = int(os.environ.get("FIRST_SEED", "0"))

# The first seed whose schedule shows that a rule is gone. Where the code has changed since, the first so many are searched.
CAUGHT_BY = {
    "epoch_without_random_bits": 3,
    "ref_is_the_place": 3,
    "cursor_is_a_position": 1,
    "own_pending_after_reconnect_only": 384,
    "own_begin_is_stale": 3,
    "begin_ignores_higher_attempts": 7,
    "read_then_begin": 171,
    "begin_without_copy": 18700,
    "no_verify": 24,
    "verify_once": 189,
    "refused_is_there": 171,
    "no_copy": 4836,
    "recut": 343,
    "lost_tail_ignored": 53,
    "line_not_restored": 3348,
    "begin_not_restored": 47,
    "end_does_not_fence": 48252,
    "early_acknowledge": 0,
    "acknowledge_in_doubt": 608,
    "own_ref_is_a_duplicate": 3,
    "acknowledge_before_add": 5,
    "requeue_same_attempt": 1,
    "acknowledge_after_break": 491,
    "silent_splice": 1,
    "old_epochs_too": 1125,
    "ahead_recut": 4989,
    "ahead_with_holes": 7090,
    "lost_and_not_kept_is_written_on": 53,
}
SEARCHED = 3_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelStore]:
    folder = tmp_path_factory.mktemp("journal-model")
    server = ValkeyServer(folder)
    store = ModelStore(folder / "valkey.sock")
    yield store
    store.close()
    server.stop()


@pytest.mark.timeout(max(120, SCHEDULES // 10))
def test_every_invariant_holds_in_every_schedule(store: ModelStore) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + SCHEDULES):
        outcome = run(store, Build(), seed)
        if outcome.problems:
            pytest.fail(_told(seed, shrink(store, Build(), seed, outcome.choices)))


@pytest.mark.timeout(max(120, SCHEDULES // 10))
def test_every_invariant_holds_when_workers_deliver_ahead_of_the_store(store: ModelStore) -> None:
    """`relaxed`: readers may be ahead, and write what the channel lacks. They may be told that texts differ, and no more."""
    build = Build(relaxed=True)
    for seed in range(FIRST_SEED, FIRST_SEED + SCHEDULES // 2):
        outcome = run(store, build, seed)
        if outcome.problems:
            pytest.fail(_told(seed, shrink(store, build, seed, outcome.choices)))


@pytest.mark.timeout(max(120, SCHEDULES // 10))
def test_every_invariant_holds_when_calls_keep_next_to_nothing(store: ModelStore) -> None:
    """Entries go as soon as they are confirmed: a store that loses any of them stops the call, and the next one goes on."""
    build = Build(channel=lambda begun, now: Channel(begun, now, most_bytes=1))
    for seed in range(FIRST_SEED, FIRST_SEED + SCHEDULES // 3):
        outcome = run(store, build, seed)
        if outcome.problems:
            pytest.fail(_told(seed, shrink(store, build, seed, outcome.choices)))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
def test_no_rule_is_decoration(store: ModelStore, name: str) -> None:
    mutant = MUTANTS[name]
    for seed in (CAUGHT_BY[name], *range(SEARCHED)):
        if run(store, mutant(), seed).problems:
            assert not run(store, Build(relaxed=mutant().relaxed), seed).problems, "the same schedule, with the rule"
            return
    pytest.fail(f"without its rule, {name} broke nothing in {SEARCHED} schedules: {mutant.__doc__}")


def test_a_schedule_goes_the_same_way_twice(store: ModelStore) -> None:
    for seed in range(20):
        one, other = run(store, Build(), seed), run(store, Build(), seed)
        assert (one.trace, one.choices) == (other.trace, other.choices)


def test_a_failing_schedule_is_shrunk_to_one_that_still_fails(store: ModelStore) -> None:
    seed = CAUGHT_BY["early_acknowledge"]
    mutant = MUTANTS["early_acknowledge"]
    long = run(store, mutant(), seed)
    short = shrink(store, mutant(), seed, long.choices, budget=60)
    assert short.problems
    assert len(short.choices) < len(long.choices)


def test_every_mutant_has_a_recorded_seed() -> None:
    assert set(CAUGHT_BY) == set(MUTANTS)


class _Direct:
    """A session without faults, for a schedule written by hand."""

    alive = True

    def __init__(self, store: ModelStore) -> None:
        self._store = store

    async def call(self, *command: str | bytes | int) -> object:
        return self._store.execute("direct", command)


async def test_a_begin_that_the_store_lost_is_not_begun_again_at_another_position(store: ModelStore) -> None:
    """Too rare for random schedules: a reader has seen the begin, the reply is lost, and the store loses it and more."""
    store.reset()
    store.scripts = {}
    session = _Direct(store)
    first, second = 1 << 20, 2 << 20
    await functions.accept(session, "g", [Entry(0, 1, 1, Kind.ACCEPTED, b"")], 60_000)
    await functions.begin(session, "g", first, "r1", "w0", b"", again=False, ttl_ms=60_000)
    tokens = Entry(first, 3, 5, Kind.TOKENS, b"")
    await session.call("XADD", "sw:resp:{g}", "NOMKSTREAM", str(tokens.id), *tokens.fields())
    began = await functions.begin(session, "g", second, "r2", "w1", b"", again=False, ttl_ms=60_000)
    assert isinstance(began, functions.Began)
    seen = Cursor(second, began.start)
    store.lose(2)  # the begin, and the tokens before it
    again = await functions.begin(session, "g", second, "r2", "w1", b"", again=True, ttl_ms=60_000)
    assert again == functions.NeverBegan(), f"a reader at {seen} would take position 3 of another text for its own past"
    fresh = await functions.begin(session, "g", second + 1, "r2", "w1", b"", again=False, ttl_ms=60_000)
    assert isinstance(fresh, functions.Began)
    assert not fresh.line.holds(*seen)


def _told(seed: int, outcome: Outcome) -> str:
    steps = "\n  ".join(outcome.trace)
    return f"seed {seed}: {outcome.problems[0]}\nthe shortest schedule found:\n  {steps}"
