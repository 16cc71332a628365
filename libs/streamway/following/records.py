"""What the store says of a generation beside its channel: the record, and where its worker is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from streamway.v1 import common_pb2
from streamway.v1.common_pb2 import Durability
from streamway.valkey import keys
from streamway.valkey.session import Reply, Session

# As long as a record outlives its last change.
RECORD_TTL_MS: Final = 600_000
ENDED_STATES: Final = frozenset({"finished", "failed", "cancelled"})
# Looking it up in protobuf's wrapper costs microseconds, and a resume does it several times.
_OFF: Final = Durability.DURABILITY_OFF
_FIELDS: Final = ("state", "worker", "tenant", "model", "session", "durability", "follows", "shared", "trace")
_HMGET: Final = b"*%d\r\n$5\r\nHMGET\r\n" % (len(_FIELDS) + 2)
_NAMES: Final = b"".join(b"$%d\r\n%b\r\n" % (len(name), name.encode()) for name in _FIELDS)


class Record(NamedTuple):
    """`state` is "queued", "running", "finished", "failed" or "cancelled". `worker` is empty for an answer from the cache.

    `trace`: the trace context of the router that took it, where its trace is recorded.
    `follows`: the generation whose channel is read in its place. `shared`: "1" others may follow it, "2" some do.
    """

    state: str
    worker: str
    tenant: str
    model: str
    session: str
    durability: Durability.ValueType
    follows: str = ""
    shared: str = ""
    trace: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED_STATES

    @property
    def durable(self) -> bool:
        """It has, or had, a response channel."""
        return self.durability != _OFF


def pack_record_question(generation: str) -> bytes:
    """The command that asks for a record, as bytes."""
    key = keys.generation(generation).encode()
    return b"%b$%d\r\n%b\r\n%b" % (_HMGET, len(key), key, _NAMES)


def record_of(row: Sequence[bytes | None]) -> Record | None:
    """What the answer to `pack_record_question` says; None: there is none."""
    told = [(value or b"").decode() for value in row]
    state, worker, tenant, model, session_key, durability, follows, shared, trace = told
    if not state:
        return None
    kept = Durability.ValueType(int(durability)) if durability.isdigit() else _OFF
    return Record(state, worker, tenant, model, session_key, kept, follows, shared, trace)


async def read_record(session: Session, generation: str) -> Record | None:
    """None: there is none. Whoever asks for a tenant must compare it. Raises LinkLost or StoreRefused."""
    return record_of((await session.call_group(pack_record_question(generation), 1))[0])


async def write_follower(
    session: Session, request: common_pb2.GenerationRequest, leader: str, worker: str, ttl_ms: int = RECORD_TTL_MS
) -> bool:
    """Writes that a generation follows another, and that this one is followed: its worker keeps both records from then on.

    False: that one has failed meanwhile. Raises LinkLost or StoreRefused.
    """
    key, followers = keys.generation(request.generation), keys.followers(leader)
    fields: list[str | bytes | int] = [
        *("state", "running", "worker", worker, "tenant", request.tenant, "session", request.session),
        *("model", request.model, "durability", request.durability, "follows", leader),
    ]
    session.send(("HSET", key, *fields), _ignore)
    session.send(("PEXPIRE", key, ttl_ms), _ignore)
    session.send(("SADD", followers, request.generation), _ignore)
    session.send(("PEXPIRE", followers, ttl_ms), _ignore)
    session.send(("HSET", keys.generation(leader), "shared", "2"), _ignore)
    state: bytes | None = await session.call("HGET", keys.generation(leader), "state")
    return state not in (b"failed", b"cancelled")


def _ignore(_: Reply) -> None:
    """For replies that change nothing."""


async def address_of(session: Session, worker: str) -> str:
    """The address of a worker while its lease is alive, else "". Raises LinkLost or StoreRefused."""
    if not worker:
        return ""
    address: bytes | None = await session.call("HGET", keys.lease("worker", worker), "address")
    return (address or b"").decode()
