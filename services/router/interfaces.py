"""What the router's parts need from one another and from outside.

Opening a generation is one port, implemented in layers that are stacked in `app.py`. Each may answer or refuse by itself, or ask
the next:

    Spanning → Admitting → Repeating → Attaching → Recalling → Metering → Resolving → Caching → Joining → Placing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.router.core.body import Body
from services.router.core.breaker import State
from services.router.core.context_table import Name
from services.router.core.decision import Decision
from services.router.core.worker import Worker
from streamway.following import Place
from streamway.telemetry.context import RequestContext
from streamway.tenancy import Tenant
from streamway.v1 import cache_pb2, common_pb2
from streamway.v1.cache_pb2 import LookupLevel


@dataclass(slots=True)
class Ask:
    """One generation on its way through the router.

    `request` is completed on the way. `tenant` is set when it was admitted, `lowered_priority` when it asked for more than its
    tenant may have, `digest` tells whether another one is the same. `cancelled` (somebody said so) and
    `abandoned` (whoever asked has gone) may be set at any time; the next step then refuses, unless `repeated`: it was asked
    for again, before or after. `cache` is what
    `Accepted.cache` will say, `allowance` what its tenant has left, `keep` whether the answer is to be stored,
    `flight` the key under which others may join it, `failed_leader` what it followed in vain. `decision` is which worker it was
    given to and why, or why nobody, `breaker` how that worker's stood; `here` is the request's context at this hop;
    `context` the kept conversation it is a turn of, which is in front of it by then.
    """

    request: common_pb2.GenerationRequest
    tenant: Tenant | None = None
    lowered_priority: int | None = None
    size_bytes: int = 0
    body: Body | None = None
    digest: str = ""
    cancelled: bool = False
    abandoned: bool = False
    repeated: bool = False
    cache: str = "off"
    allowance: common_pb2.Allowance | None = None
    keep: bool = False
    flight: bytes | None = None
    failed_leader: str = ""
    decision: Decision | None = None
    breaker: State | None = None
    here: RequestContext | None = None
    context: Name | None = None

    @property
    def needs_store(self) -> bool:
        """It is refused where it cannot have a channel: so it asked, or what comes of it is to be kept."""
        return self.context is not None or self.request.durability == common_pb2.DURABILITY_STRICT

    @property
    def unwanted(self) -> bool:
        """Nothing more is to be begun for it."""
        return self.cancelled or (self.abandoned and not self.repeated)


@dataclass(frozen=True, slots=True)
class Opened:
    """A generation that was taken. `events` begins with `accepted`.

    What follows is read at `place`; without one from the channel of `attached_to`, an earlier generation; without that either,
    `events` is the whole answer, told at once or as slowly as `pace` says: seconds before each. `durable`: there is a channel.
    `follows`: the generation whose events it has.
    """

    events: list[common_pb2.Event]
    place: Place | None
    attached_to: str = ""
    durable: bool = False
    follows: str = ""
    pace: tuple[float, ...] = ()


class Opener(Protocol):
    """Takes generations."""

    async def open(self, ask: Ask) -> Opened:
        """Takes one. Raises StreamwayError when it is refused; then nothing runs."""
        ...


class Charges(Protocol):
    """What is told of the end of generations: to charge for them, or to keep them. One that it does not know is ignored."""

    def ended(self, generation: str, event: common_pb2.Event) -> None:
        """With this last event."""
        ...

    def overtaken(self, generation: str) -> None:
        """Its channel has an answer from the cache: no engine has made anything of it."""
        ...

    def abandon(self, generation: str) -> None:
        """Its end will not be seen."""
        ...


class WorkerSource(Protocol):
    """Where the workers are learned from."""

    async def read(self) -> list[Worker]:
        """Every worker there is now. Raises StoreUnavailable when that cannot be told."""
        ...


class WorkerProbe(Protocol):
    """Asks a worker itself."""

    async def answers(self, address: str) -> bool:
        """Whether a worker is there. Never raises."""
        ...


class AnswerCache(Protocol):
    """Answers given before."""

    async def lookup(
        self, request: common_pb2.GenerationRequest, level: LookupLevel.ValueType, budget_s: float | None = None
    ) -> cache_pb2.LookupResponse | None:
        """What the levels asked say within `budget_s`, or their own budget; None when they say nothing. Never raises."""
        ...

    def store(self, request: common_pb2.GenerationRequest, events: Sequence[common_pb2.Event]) -> None:
        """Offers a finished answer. Returns at once, and drops it where it would have to wait."""
        ...
