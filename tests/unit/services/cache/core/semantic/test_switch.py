"""A semantic level that costs more than it saves is not asked for a while."""

from __future__ import annotations

from services.cache.core.semantic.switch import Switch, Terms

TERMS = Terms(window=10, grace=20, pause=5, most_pause=15)


def ask(switch: Switch, questions: int, money: float) -> list[bool]:
    """So many questions, each of which comes to so much; whether each was looked at."""
    asked = []
    for _ in range(questions):
        asked.append(switch.ask())
        if asked[-1]:
            switch.posted(money)
    return asked


def test_it_stays_on_while_it_pays() -> None:
    switch = Switch(TERMS)
    assert all(ask(switch, 100, 1.0))
    assert (switch.state, switch.balance) == ("on", 10.0)


def test_a_level_that_still_learns_is_not_judged() -> None:
    switch = Switch(TERMS)
    assert all(ask(switch, TERMS.grace, -1.0))
    assert not switch.ask()


def test_it_goes_off_and_comes_back_on_trial_and_stays_when_that_pays() -> None:
    switch = Switch(TERMS)
    ask(switch, 20, -1.0)
    assert ask(switch, 5, -1.0) == [False] * 5
    assert (switch.state, switch.left) == ("off", 1)
    assert all(ask(switch, 10, 1.0))
    assert switch.state == "trial"
    assert switch.ask()
    assert (switch.state, switch.left) == ("on", 0)


def test_a_failed_trial_doubles_the_pause_up_to_its_limit() -> None:
    switch = Switch(TERMS)
    ask(switch, 20, -1.0)
    pauses = []
    for _ in range(4):
        pause = 0
        while not switch.ask():
            pause += 1
        pauses.append(pause)
        switch.posted(-1.0)
        ask(switch, TERMS.window - 1, -1.0)
    assert pauses == [5, 10, 15, 15]


def test_the_first_pause_is_back_after_a_trial_that_paid() -> None:
    switch = Switch(TERMS)
    ask(switch, 20, -1.0)
    ask(switch, 5, -1.0)
    ask(switch, 10, -1.0)
    ask(switch, 10, -1.0)
    assert switch.state == "off"
    ask(switch, 1, 0.0)
    ask(switch, 20, 1.0)
    assert switch.state == "on"
    while switch.ask():
        switch.posted(-1.0)
    assert switch.left == TERMS.pause


def test_what_comes_to_nothing_is_no_loss() -> None:
    switch = Switch(TERMS)
    assert all(ask(switch, 50, 0.0))


def test_without_enforcement_nothing_follows() -> None:
    switch = Switch(TERMS, enforced=False)
    assert all(ask(switch, 100, -1.0))
    assert switch.balance < 0
