"""When a reader that lost its worker finds another, and when it gives up."""

from __future__ import annotations

from streamway.errors import EventsExpired, GenerationNotFound, RouterUnavailable, WorkerLost
from streamway.following import Located, Place
from streamway.following.catching_up import Found
from streamway.following.search import Search
from streamway.journal import Cursor

ONE, TWO = 1 << 20, 2 << 20
W0, W1 = Place("w0", "h:1"), Place("w1", "h:2")


def test_the_lost_worker_counts_again_only_with_a_new_call() -> None:
    search = Search("g", "w0", WorkerLost("w0"))
    assert not search.reaches(Located(W0, ONE), Cursor(ONE, 7))
    assert search.reaches(Located(W0, TWO), Cursor(ONE, 7))
    assert search.reaches(Located(W1, ONE), Cursor(ONE, 7)), "it waits for its task"
    assert not search.reaches(Located(None, TWO), Cursor(ONE, 7))
    assert not search.reaches(Located(W1, TWO, ended=True), Cursor(ONE, 7))


def test_after_a_lost_worker_it_looks_at_once_and_then_more_and_more_seldom() -> None:
    search = Search("g", "w0", WorkerLost("w0"))
    pauses = [search.pause_s]
    for _ in range(7):
        assert not search.not_reached(Located(None, ONE))
        pauses.append(search.pause_s)
    assert pauses == [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_worker_that_refuses_is_not_asked_again_without_a_pause() -> None:
    assert Search("g", "", EventsExpired("g")).pause_s > 0
    assert Search("g", "", None).pause_s == 0


def test_a_worker_without_a_lease_is_looked_for_as_a_lost_one() -> None:
    search = Search("g", "", None)
    assert not search.not_reached(Located(None, ONE, worker="w0"))
    assert search.lost_worker == "w0"
    assert isinstance(search.verdict(hopeless=False), WorkerLost)


def test_it_gives_up_where_there_is_neither_a_record_nor_a_channel() -> None:
    search = Search("g", "", None, found=Found.NOTHING)
    assert search.not_reached(GenerationNotFound("g"))
    assert isinstance(search.verdict(hopeless=True), EventsExpired)
    assert not Search("g", "", None, found=Found.TAIL).not_reached(GenerationNotFound("g"))
    assert not Search("g", "", None, found=Found.NOTHING).not_reached(RouterUnavailable())


def test_an_end_that_the_record_says_may_reach_the_channel_a_moment_later() -> None:
    search = Search("g", "w0", None, found=Found.TAIL)
    answers = [search.not_reached(Located(None, ONE, ended=True)) for _ in range(5)]
    assert answers == [False, False, False, False, True]
    assert Search("g", "w0", None, found=Found.NOTHING).not_reached(Located(None, ONE, ended=True))


def test_what_neither_channel_nor_worker_has_was_never_there() -> None:
    assert Search("g", "", EventsExpired("g"), found=Found.BEHIND).refuted
    assert not Search("g", "", None, found=Found.BEHIND).refuted
    assert not Search("g", "", EventsExpired("g"), found=Found.TAIL).refuted
