"""Events that the router makes itself."""

from __future__ import annotations

from collections.abc import Sequence

from streamway.cachestatus import hit_of
from streamway.errors import StreamwayError, to_status
from streamway.journal.entries import Entry, Kind, encode_events
from streamway.v1 import cache_pb2, common_pb2

TERMINAL = ("finished", "error")


def accepted(
    request: common_pb2.GenerationRequest,
    *,
    route: str,
    cache: str,
    reason: str = "",
    worker: str = "",
    source: str = "",
    queue_position: int = 0,
    durability: common_pb2.Durability.ValueType = common_pb2.DURABILITY_OFF,
    attached_to: str = "",
    allowance: common_pb2.Allowance | None = None,
    lowered_priority: int | None = None,
) -> common_pb2.Event:
    """Position 1 of every generation."""
    return common_pb2.Event(
        generation=request.generation,
        position=1,
        accepted=common_pb2.Accepted(
            worker=worker,
            source=source,
            queue_position=queue_position,
            durability=durability,
            cursor="0-1",
            model=request.model,
            route=route,
            reason=reason,
            cache=cache,
            session=request.session,
            attached_to=attached_to,
            allowance=allowance,
            lowered_priority=lowered_priority,
            traceparent=request.traceparent,
        ),
    )


def entries_of(events: Sequence[common_pb2.Event]) -> list[Entry]:
    """The entries of what is known before any engine call: `accepted`, or a whole answer."""
    bare = []
    for event in events:
        copy = common_pb2.Event()
        copy.CopyFrom(event)
        copy.generation = ""
        bare.append(copy)
    entries = [Entry(0, 1, 1, Kind.ACCEPTED, encode_events(bare[:1]))]
    if len(bare) > 1:
        between, end = bare[1:-1], bare[-1]
        entries.append(Entry(0, 2, between[-1].position, Kind.TOKENS, encode_events(between)))
        entries.append(Entry(0, end.position, end.position, Kind.END, encode_events([end])))
    return entries


def failed(generation: str, error: StreamwayError, delivered_until: int = 0) -> common_pb2.Event:
    """The end of a generation for which no worker speaks: a refusal, or a lost worker."""
    return common_pb2.Event(
        generation=generation,
        position=delivered_until + 1,
        error=common_pb2.Error(status=to_status(error), delivered_until=delivered_until),
    )


def replay(
    request: common_pb2.GenerationRequest,
    answer: cache_pb2.CachedAnswer,
    level: str,
    durability: common_pb2.Durability.ValueType = common_pb2.DURABILITY_OFF,
    allowance: common_pb2.Allowance | None = None,
) -> list[common_pb2.Event]:
    """A stored answer as the events of a live one: same borders, positions that tile, usage marked as cached.

    `level` is "exact", "folded" or "semantic".
    """
    taken = accepted(request, route="cache", cache=level, durability=durability, allowance=allowance)
    taken.accepted.cache_hit.CopyFrom(hit_of(answer))
    began = common_pb2.Event(generation=request.generation, position=2, started=common_pb2.Started())
    return [taken, began, *_pieces(request.generation, answer, 2)]


def overtaking(answer: cache_pb2.CachedAnswer, level: str, start: int) -> list[common_pb2.Event]:
    """A stored answer in the place of what a worker has not begun to say: `started`, at `start`, tells where it comes from."""
    began = common_pb2.Started(cache=level, cache_hit=hit_of(answer))
    return [common_pb2.Event(position=start, started=began), *_pieces("", answer, start)]


def _pieces(generation: str, answer: cache_pb2.CachedAnswer, position: int) -> list[common_pb2.Event]:
    """The pieces and the end, from behind `position` on."""
    events = []
    for stored in answer.events:
        units = max(1, stored.token.units)
        event = common_pb2.Event(generation=generation, position=position + units, token=stored.token)
        if units > 1:
            event.first_position = position + 1
        position += units
        events.append(event)
    finished = common_pb2.Finished(finish_reason=answer.finish_reason, usage=answer.usage)
    finished.usage.from_cache = True
    if finished.usage.HasField("cost"):
        finished.usage.cost = 0.0
    events.append(common_pb2.Event(generation=generation, position=position + 1, finished=finished))
    return events
