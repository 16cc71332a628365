"""An answer that is read over several connections: each position once, and what is missing is said."""

from __future__ import annotations

import pytest

from services.supervisor.core.answer import Answer, BeginAnew
from streamway.errors import EngineFailed, StreamwayError, to_status
from streamway.v1 import common_pb2


def token(position: int, text: str, units: int = 1, epoch: int = 9) -> common_pb2.Event:
    piece = common_pb2.Token(text=text, units=units)
    return common_pb2.Event(generation="g", epoch=epoch, position=position, token=piece)


def resumed(**fields: object) -> common_pb2.Event:
    return common_pb2.Event(resumed=common_pb2.Resumed(**fields))  # type: ignore[arg-type]


def accepted(worker: str = "w1") -> common_pb2.Event:
    return common_pb2.Event(generation="g", position=1, accepted=common_pb2.Accepted(worker=worker, cache="miss"))


def test_what_comes_again_is_shown_once() -> None:
    answer = Answer()
    assert answer.cursor == "0-0"
    shown = [answer.receive(event) for event in (accepted(), token(3, "Hel"), token(4, "lo"))]
    assert answer.cursor == "9-4"
    shown += [answer.receive(event) for event in (resumed(recovered=True), token(4, "lo"), token(5, "!"))]
    assert "".join(shown) == answer.text == "Hello!"
    assert (answer.units, answer.generation, answer.worker, answer.notes) == (3, "g", "w1", ())


def test_the_end_and_why() -> None:
    answer = Answer()
    answer.receive(token(3, "x", units=2))
    finished = common_pb2.Finished(finish_reason="length")
    answer.receive(common_pb2.Event(generation="g", epoch=9, position=4, finished=finished))
    assert (answer.over, answer.finish, answer.units) == (True, "length", 2)


def test_an_error_is_raised_as_itself() -> None:
    error = common_pb2.Error(status=to_status(EngineFailed("w1", "it fell over")))
    with pytest.raises(StreamwayError) as caught:
        Answer().receive(common_pb2.Event(generation="g", position=2, error=error))
    assert caught.value.name == "engine_failed"


def test_another_worker_and_what_is_missing_are_noted() -> None:
    answer = Answer("g", 9, 4, "Hell")
    answer.receive(resumed(recovered=False, oldest=7))
    took = common_pb2.TakenOver(worker="w2", from_worker="w1")
    answer.receive(common_pb2.Event(epoch=10, position=7, taken_over=took))
    assert answer.notes == ("positions 5 to 6 are no longer kept", "w1 is gone, w2 goes on")
    assert (answer.worker, answer.cursor) == ("w2", "10-7")
    answer.receive(resumed(recovered=False, behind=True))
    assert "the store lost the newest part" in answer.notes[-1]


def test_text_that_no_longer_counts_is_read_again_from_the_beginning() -> None:
    answer = Answer("g", 9, 4, "Hell")
    with pytest.raises(BeginAnew):
        answer.receive(common_pb2.Event(diverged=common_pb2.Diverged(at="9-3")))
    assert (answer.text, answer.cursor, answer.generation) == ("", "0-0", "g")
