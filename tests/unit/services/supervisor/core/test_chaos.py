"""What a chaos run counts: an account, the moment of a deed, and the row it comes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from services.supervisor.core.account import Account, ComeAgain
from services.supervisor.core.rounds import FULL, MATRIX, PHASES, SHORT, STANDARD, SURFACES, VICTIMS, Round, chosen
from services.supervisor.core.verdict import Witness, judge
from streamway.errors import WorkerLost, to_status
from streamway.v1 import common_pb2

ACCEPTED = {"type": "accepted", "generation": "g", "position": 1, "durability": "relaxed", "worker": "w0"}
STARTED = {"type": "started", "position": 2, "epoch": 7, "worker": "w0"}
END = {"type": "finished", "position": 5, "usage": {"completion_tokens": 2}}


def token(first: int, last: int, text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "token", "first_position": first, "position": last, "text": text, **fields}


def told(*frames: dict[str, Any], expected: str = "ab", tokens: int = 2) -> Account:
    account = Account(expected, tokens)
    for second, frame in enumerate(frames):
        account.frame(frame, float(second))
    return account


def test_a_whole_answer_has_nothing_to_complain_of() -> None:
    account = told(ACCEPTED, STARTED, token(3, 3, "a"), token(4, 4, "b"), END)
    assert (account.problem, account.lost, account.repeated) == ("", 0, 0)
    assert (account.cursor, account.worker, account.durability) == ("7-5", "w0", "relaxed")


def test_a_position_that_never_came_is_lost_and_one_that_came_twice_repeated() -> None:
    hole = told(ACCEPTED, STARTED, token(4, 4, "b"), END)
    assert hole.lost == 1
    assert hole.problem.startswith("another text from character 0")
    again = told(ACCEPTED, STARTED, token(3, 3, "a"), token(3, 4, "ab"), END, expected="ab")
    assert again.repeated == 1
    same = told(ACCEPTED, STARTED, token(3, 3, "a"), token(3, 3, "a"), token(4, 4, "b"), END)
    assert (same.repeated, same.text) == (1, "ab")


def test_an_answer_that_ends_too_early_has_lost_tokens() -> None:
    account = told(ACCEPTED, STARTED, token(3, 3, "a"), {**END, "position": 4})
    assert account.lost == 1


def test_usage_that_counts_otherwise_is_a_failure() -> None:
    wrong = {**END, "usage": {"completion_tokens": 3}}
    assert told(ACCEPTED, STARTED, token(3, 4, "ab"), wrong).problem == "usage says 3 tokens"


@pytest.mark.parametrize("reason", ["going_away", "router_unavailable", "store_unavailable"])
def test_what_passes_makes_the_client_come_again_and_the_rest_is_an_end(reason: str) -> None:
    account = told(ACCEPTED)
    with pytest.raises(ComeAgain):
        account.frame({"type": "error", "reason": reason}, 1.0)
    assert not account.over
    account.frame({"type": "error", "reason": "worker_lost"}, 2.0)
    assert (account.over, account.problem, account.honest) == (True, "worker_lost", True)


def test_grpc_events_are_booked_as_frames_are() -> None:
    account = Account("ab", 2)
    events = [
        common_pb2.Event(generation="g", position=1, accepted=common_pb2.Accepted(worker="w0", durability=2)),
        common_pb2.Event(position=2, epoch=7, started=common_pb2.Started(worker="w0")),
        common_pb2.Event(first_position=3, position=4, token=common_pb2.Token(text="ab"), not_durable=True),
        common_pb2.Event(position=5, epoch=9, taken_over=common_pb2.TakenOver(worker="w1")),
    ]
    for second, event in enumerate(events):
        account.event(event, float(second))
    assert (account.text, account.units, account.worker, account.cursor) == ("ab", 2, "w1", "9-5")
    assert account.not_durable == 1
    account.event(common_pb2.Event(error=common_pb2.Error(status=to_status(WorkerLost("w1")))), 9.0)
    assert account.problem == "worker_lost"


def test_a_silence_counts_from_the_last_piece_before_the_deed_and_waiting_in_a_queue_does_not() -> None:
    account = told(ACCEPTED, STARTED, token(3, 3, "a"), token(4, 4, "b"), END)
    assert account.longest_silence(2.5) == 1.0
    assert account.longest_silence(99.0) is None
    assert account.longest_silence(0.5) is None
    assert account.longest_silence(0.5, before_first=True) == 1.5


@pytest.mark.parametrize(
    ("phase", "moment"),
    [
        ("queued", lambda account: account.frame(ACCEPTED, 0.0)),
        ("prefill", lambda account: (account.frame(ACCEPTED, 0.0), account.frame(STARTED, 0.1))),
        ("decode", lambda account: (account.frame(STARTED, 0.1), account.frame(token(3, 22, "x"), 0.2))),
        ("last token", lambda account: (account.frame(STARTED, 0.1), account.frame(token(3, 61, "x"), 0.2))),
    ],
)
def test_the_moment_of_a_deed_is_that_of_its_phase(phase: Any, moment: Callable[[Account], object]) -> None:
    round_, account = Round("kill", "adapter", phase), Account("x" * 60, 60)
    assert not round_.reached(account, 5.0)
    moment(account)
    assert round_.reached(account, 5.0)
    account.give_up("over")
    assert not round_.reached(account, 5.0)


def witness(*frames: dict[str, Any], hit: bool = True, expected_durability: str = "") -> Witness:
    return Witness("sse", told(*frames), live=True, hit=hit, expected_durability=expected_durability)


WHOLE = (ACCEPTED, STARTED, token(3, 3, "a"), token(4, 4, "b"), END)


def test_a_row_counts_those_that_were_hit() -> None:
    row = judge(Round("kill", "edge"), "edge-0", [witness(*WHOLE), witness(*WHOLE, hit=False)], 2.5)
    assert (row.streams, row.live, row.hit, row.clean, row.next_token_most_s) == (2, 2, 1, True, 1.0)


def test_a_row_is_not_clean_when_a_stream_lost_something_or_was_told_another_mode() -> None:
    cut = witness(ACCEPTED, STARTED, token(3, 3, "a"), {"type": "error", "reason": "worker_lost"})
    row = judge(Round("kill", "adapter"), "adapter-0", [cut], 2.5)
    assert (row.clean, row.failed, row.note) == (False, 1, "1 × sse: worker_lost")
    other = judge(Round("stop", "valkey"), "valkey", [witness(*WHOLE, expected_durability="off")], 2.5)
    assert (other.clean, other.note) == (False, "1 × sse: durability relaxed, not off")


def test_an_honest_end_is_no_failure_only_where_nothing_else_is_possible() -> None:
    ended = (ACCEPTED, STARTED, token(3, 3, "a"), {"type": "error", "reason": "events_expired"})
    row = judge(Round("empty", "valkey", may_end=True), "valkey", [witness(*ended)], 2.5)
    assert (row.clean, row.ended, row.note) == (True, 1, "1 ended: events_expired")
    dishonest = (ACCEPTED, STARTED, token(3, 3, "b"), {"type": "error", "reason": "events_expired"})
    assert not judge(Round("empty", "valkey", may_end=True), "valkey", [witness(*dishonest)], 2.5).clean


def test_the_full_run_holds_the_whole_matrix() -> None:
    combinations = {(each.victim, each.phase, each.surface) for each in MATRIX}
    assert combinations == {(v, p, s) for v in VICTIMS[:3] for p in PHASES for s in SURFACES}
    assert len(MATRIX) == 36
    assert set(MATRIX) | set(STANDARD) == set(FULL)
    for deed in ("kill", "pause", "cut"):
        assert {each.victim for each in STANDARD if each.deed == deed} == set(VICTIMS)
    assert {each.victim for each in SHORT if each.deed == "kill"} == set(VICTIMS)


def test_rounds_are_chosen_by_victim() -> None:
    assert {each.victim for each in chosen(FULL, ["valkey"])} == {"valkey"}
    assert chosen(FULL, []) == FULL
