"""Events the router makes, and what it reads of workers."""

from __future__ import annotations

import pytest

from services.router.core.catalogue import served_models
from services.router.core.events import accepted, failed, replay
from services.router.core.worker import ServedModel, Worker
from streamway.errors import QueueFull, from_status
from streamway.v1 import cache_pb2, common_pb2
from tests.support.inference_service import token
from tests.support.router_mesh import ask


def test_a_stored_answer_is_replayed_with_tiling_positions_and_cached_usage() -> None:
    request = ask()
    merged = token(7, "b c")
    merged.token.units = 3
    answer = cache_pb2.CachedAnswer(
        entry="e",
        events=[token(5, "a"), merged, token(8, "d")],
        finish_reason="stop",
        usage=common_pb2.Usage(prompt_tokens=4, completion_tokens=5),
    )
    events = replay(request, answer, "exact")
    assert [event.WhichOneof("event") for event in events] == [
        "accepted",
        "started",
        "token",
        "token",
        "token",
        "finished",
    ]
    assert [(event.first_position, event.position) for event in events] == [
        (0, 1),
        (0, 2),
        (0, 3),
        (4, 6),
        (0, 7),
        (0, 8),
    ]
    assert {event.generation for event in events} == {request.generation}
    assert {event.epoch for event in events} == {0}
    assert events[0].accepted.cache == "exact"
    assert events[0].accepted.worker == ""
    usage = events[-1].finished.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.from_cache) == (4, 5, True)
    assert not answer.usage.from_cache, "the answer itself is not changed"


def test_a_failure_comes_after_what_was_delivered() -> None:
    event = failed("g", QueueFull("m", 3), delivered_until=7)
    assert (event.position, event.error.delivered_until) == (8, 7)
    assert from_status(event.error.status).retry_after_s == 3


def test_accepted_says_that_nothing_survives_a_crash() -> None:
    event = accepted(ask(), route="home", cache="miss", worker="w", source="h:1", queue_position=2)
    assert event.accepted.durability == common_pb2.DURABILITY_OFF
    assert (event.position, event.epoch, event.accepted.cursor) == (1, 0, "0-1")


def test_a_lease_becomes_a_worker() -> None:
    fields = {"address": "h:1", "models": '[{"name": "m", "context_tokens": 512}, {"name": "n"}]', "slots": "0"}
    worker = Worker.parse("w", fields)
    assert worker.models == (ServedModel("m", 512), ServedModel("n", 0))
    assert (worker.slots, worker.state, worker.load_tokens) == (1, "ready", 0)
    assert Worker.parse("w", fields | {"draining": "1"}).state == "draining"
    assert Worker.parse("w", fields | {"draining": "1", "healthy": "0"}).state == "unhealthy"
    assert worker.serves("n")
    assert not worker.serves("x")


@pytest.mark.parametrize(
    "broken", [{}, {"address": "h:1", "models": "{", "slots": "1"}, {"address": "h:1", "models": "[]", "slots": "x"}]
)
def test_a_broken_lease_is_told(broken: dict[str, str]) -> None:
    with pytest.raises((KeyError, ValueError)):
        Worker.parse("w", broken)


def test_models_are_those_of_ready_workers() -> None:
    def worker(id_: str, context: int, **changes: bool) -> Worker:
        return Worker(id_, "h:1", (ServedModel("m", context), ServedModel(f"only-{id_}", 0)), 4, **changes)

    rows = served_models(
        [worker("a", 4096), worker("b", 2048), worker("c", 1, draining=True), worker("d", 1, healthy=False)]
    )
    assert [(row.name, row.workers, row.slots, row.context_tokens) for row in rows] == [
        ("m", 2, 8, 2048),
        ("only-a", 1, 4, 0),
        ("only-b", 1, 4, 0),
    ]
