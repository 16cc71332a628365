"""The answer to a request that is led to a generation which was begun before."""

from __future__ import annotations

from services.router.core import events
from services.router.interfaces import Ask, Opened
from services.router.io.locating import Locator
from streamway.following import Place
from streamway.v1 import common_pb2


def led_to(
    locator: Locator,
    ask: Ask,
    generation: str,
    *,
    route: str,
    worker: str,
    place: Place | None,
    durability: common_pb2.Durability.ValueType,
    durable: bool,
) -> Opened:
    """`generation` is the one whose events are read, at `place` if it can be read there."""
    told = events.accepted(
        ask.request,
        route=route,
        cache="off",
        worker=worker,
        source=locator.source_of(place),
        durability=durability,
        attached_to=generation,
    )
    return Opened([told], place, generation, durable=durable)
