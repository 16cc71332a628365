from __future__ import annotations

from collections.abc import Iterator

from services.router.core.moves import MOST_TOLD, Home, Moves
from services.router.core.pool import Pool
from services.router.core.strategy import StrategyOptions, make_strategy


class Table:
    """Sessions and their homes; counts how often it was asked."""

    def __init__(self, *homes: Home) -> None:
        self.homes = homes
        self.asked = 0

    def __call__(self, most: int) -> Iterator[Home]:
        self.asked += 1
        return iter(self.homes[:most])


def at(worker: str, session: str = "s") -> Home:
    return Home("t", "m", session, worker)


def all_of(moves: Moves) -> list[Home]:
    return [home for _ in range(20) for home in moves.step()]


def test_sessions_of_a_worker_that_came_are_told_once() -> None:
    table = Table(at("w0"), at("w1", "a"), at("w1", "b"))
    moves = Moves(table)
    moves.seen({"w0": 1.0})
    assert all_of(moves) == [at("w0")]
    moves.seen({"w0": 1.0, "w1": 2.0})
    assert all_of(moves) == [at("w1", "a"), at("w1", "b")]
    moves.seen({"w0": 1.0, "w1": 2.0})
    assert all_of(moves) == []
    assert table.asked == 2


def test_a_worker_in_a_new_life_is_a_new_one() -> None:
    moves = Moves(Table(at("w0")))
    moves.seen({"w0": 1.0})
    all_of(moves)
    moves.seen({"w0": 5.0})
    assert all_of(moves) == [at("w0")]
    # And one that was away, whatever it says of its life.
    moves.seen({})
    moves.seen({"w0": 5.0})
    assert all_of(moves) == [at("w0")]


def test_one_that_went_before_its_look_is_told_nothing() -> None:
    moves = Moves(Table(at("w0")))
    moves.seen({"w0": 1.0})
    moves.seen({})
    assert all_of(moves) == []


def test_a_look_is_done_in_parts_and_one_worker_is_told_so_many() -> None:
    table = Table(*(at("w0", str(number)) for number in range(2000)), at("w1"))
    moves = Moves(table)
    moves.seen({"w0": 1.0, "w1": 1.0})
    first = moves.step()
    assert len(first) == MOST_TOLD
    assert all_of(moves) == [at("w1")]
    assert table.asked == 1


def test_who_comes_during_a_look_gets_the_next_one() -> None:
    moves = Moves(Table(*(at("w0", str(number)) for number in range(700)), at("w1")))
    moves.seen({"w0": 1.0})
    moves.step()
    moves.seen({"w0": 1.0, "w1": 1.0})
    assert all_of(moves) == [at("w1")]


def test_strategies_without_homes_tell_none() -> None:
    for name in ("least_loaded", "prefix"):
        assert list(make_strategy(name, StrategyOptions()).homes(lambda _: Pool(), 10)) == []
