"""A sign of life for a generation that nobody reads at the moment, but somebody will.

A worker ends what nobody reads for longer than its grace; a subscription, however short, begins the grace anew.
"""

from __future__ import annotations

from typing import Final

from streamway.errors import StreamwayError
from streamway.following import GenerationReader, ReaderPorts
from streamway.v1 import common_pb2
from streamway.v1.inference_pb2 import VIEW_LIVE


async def touch(ports: ReaderPorts, generation: str, tenant: str, source: GenerationReader) -> None:
    """Gives one to the worker that has it, as far as `source` or a router knows. Raises what `locate` raises."""
    place = source.place
    if place is None:
        place = (await ports.locate(generation, tenant, wait_s=0.0, above_epoch=0, lost_worker="")).place
    if place is not None:
        client = ports.pool.client(place.address, place.worker)
        client.unsubscribe(client.subscribe(generation, source.cursor, VIEW_LIVE, _NOBODY))


class _Nobody:
    """Reads nothing."""

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """Not wanted."""

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        """Its reader will find out."""

    def gap(self) -> None:
        """Its reader will find out."""


_NOBODY: Final = _Nobody()
