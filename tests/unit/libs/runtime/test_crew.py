"""Threads that take work in turn."""

from __future__ import annotations

import threading

from streamway.runtime.crew import Crew


def test_no_more_than_its_size_work_at_a_time_and_all_is_done() -> None:
    crew = Crew(2, "crew")
    gate, both = threading.Event(), threading.Barrier(3)
    done: list[int] = []

    def work(number: int) -> None:
        if number < 2:
            both.wait(30)
            gate.wait(30)
        done.append(number)

    for number in range(5):
        crew.take(lambda number=number: work(number))  # type: ignore[misc]
    both.wait(30)
    assert not done, "the third waits for a thread"
    gate.set()
    assert crew.end(30)
    assert sorted(done) == list(range(5))


def test_who_is_still_at_it_is_told_and_not_waited_for() -> None:
    crew, gate = Crew(1, "crew"), threading.Event()
    crew.take(lambda: gate.wait(30))  # type: ignore[arg-type, return-value]
    assert not crew.end(0.05)
    gate.set()
    assert crew.end(30)


def test_a_crew_that_was_never_asked_has_no_threads() -> None:
    before = threading.active_count()
    crew = Crew(8, "crew")
    assert threading.active_count() == before
    assert crew.end(0)
