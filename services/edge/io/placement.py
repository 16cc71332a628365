"""A new generation's way to a router.

request ──► at a router ──► settled: the mesh has it, or it has ended
   ▲   the router is gone, or shuts down
   └──────────┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from services.edge.core.buffer_share import RequestRoom
from services.edge.io.router_link import RouterLink
from streamway.errors import GoingAway, from_status
from streamway.v1 import common_pb2

if TYPE_CHECKING:
    from services.edge.io.generation import Generation

_MOST: Final = 8


class Placement:
    """Which router has a generation. One that is resumed has no request, and is at none."""

    __slots__ = ("_count", "_life", "_link", "_request", "_room", "failed_leader", "held_bytes")

    def __init__(self, room: RequestRoom) -> None:
        self._room = room
        self._request: common_pb2.GenerationRequest | None = None
        # Of the request while it is kept.
        self.held_bytes = 0
        # What it followed in vain.
        self.failed_leader = ""
        self._link: RouterLink | None = None
        self._life = 0
        self._count = 0

    @property
    def request(self) -> common_pb2.GenerationRequest | None:
        """Kept until the mesh has accepted it: then it may be large and is not needed any more."""
        return self._request

    @request.setter
    def request(self, request: common_pb2.GenerationRequest | None) -> None:
        self.hold(request, request.ByteSize() if request is not None else 0)

    def hold(self, request: common_pb2.GenerationRequest | None, size_bytes: int) -> None:
        """Keeps a request of this size. It is told by who knows it, since a large one must be written to be measured."""
        self._room.held_bytes += size_bytes - self.held_bytes
        self._request, self.held_bytes = request, size_bytes

    @property
    def waiting(self) -> bool:
        """No router has it, and one should."""
        return self.request is not None and self._link is None

    @property
    def exhausted(self) -> bool:
        """So many routers had it that the next would not help."""
        return self._count >= _MOST

    def moves_after(self, refusal: common_pb2.Event) -> bool:
        """The router refused since it shuts down: another one may take the same request."""
        return not self.exhausted and isinstance(from_status(refusal.error.status), GoingAway)

    def open(self, generation: Generation, link: RouterLink) -> None:
        """Opens it at a router."""
        if self.request is None:
            return
        self._count += 1
        self._link, self._life = link, link.life
        link.open(generation, self.request, self.failed_leader)

    def at(self, link: RouterLink) -> bool:
        """This router has it."""
        return link is self._link

    def leave(self) -> None:
        """The router does not have it any more."""
        self._link = None

    def ask_again(self, request: common_pb2.GenerationRequest, failed_leader: str) -> None:
        """No router has it any more, and the next must not let it follow the same generation."""
        self._link, self.request, self.failed_leader = None, request, failed_leader

    def cancel(self, generation_id: str) -> bool:
        """Sends a cancel; False where the router that had it is gone."""
        link = self._link
        if link is None or not link.live or link.life != self._life:
            return False
        link.cancel(generation_id)
        return True

    def settle(self, generation_id: str) -> None:
        """Nothing more comes from the router; a cancel can still go there."""
        if self._link is not None:
            self._link.settle(generation_id)
