"""What a `GenerationReader` needs, and whom it reads for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from streamway.attach import AttachPool
from streamway.errors import StreamwayError
from streamway.following.crowd import Crowd
from streamway.journal import Follower
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from streamway.valkey.session import Sessions


class Place(NamedTuple):
    """A worker and its gRPC address, "host:port"."""

    worker: str
    address: str


class ReaderSink(Protocol):
    """Whom a reader reads for. Called on the event loop; must not block. It may call the reader back."""

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event. `kind` is the name of the set member of `Event.event`.

        Live ones carry `subscription`, those of the channel and the reader's own carry neither that nor `generation`.
        """
        ...

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        """Instead of a terminal event: nothing follows, and why. `delivered_until`: the reader's last position."""
        ...


@dataclass(frozen=True, slots=True)
class Located:
    """Where a generation is now.

    `place` None: no worker that can be reached has it. `epoch`: of the engine call that writes or wrote last, 0 for none.
    `durable`: it has, or had, a response channel. `worker` is the one it was given to, reachable or not.
    """

    place: Place | None
    epoch: int = 0
    ended: bool = False
    durable: bool = True
    worker: str = ""


class Locate(Protocol):
    """Finds generations: at an edge by asking a router (`locate` on `Connect`), at a router by itself."""

    async def __call__(
        self, generation: str, tenant: str, *, wait_s: float, above_epoch: int, lost_worker: str
    ) -> Located:
        """Where it is. With `wait_s` waits up to that until a worker that can be reached has begun an epoch above
        `above_epoch`, or the generation has ended. `lost_worker`: its stream broke, so it need not be believed in.

        Raises GenerationNotFound where the tenant has none of that name, and another StreamwayError (no router, no store)
        where asking again may help.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReaderPorts:
    """What all readers of a process share.

    `follower` None: where no worker can be reached the channel is read again and again instead. `after_batch` is called
    after each group of events that did not come from the `pool`, which has its own. `takeover_wait_s` is how long a reader
    waits without any news for a worker that goes on; `store_wait_s` how long for the store before it does without. `crowd` is
    where they ask the store together.
    """

    pool: AttachPool
    journal: Sessions
    locate: Locate
    scope: TaskScope
    follower: Follower | None = None
    after_batch: Callable[[], None] | None = None
    takeover_wait_s: float = 45.0
    store_wait_s: float = 2.0
    clock: Callable[[], float] = time.monotonic
    crowd: Crowd = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "crowd", Crowd(self.journal, self.scope, self.store_wait_s, self.clock))
