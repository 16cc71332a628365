"""Writes what is kept of sessions, off the token path: `sw:session`, the fields `snapshot:` and `context:`."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import structlog
from google.protobuf.json_format import MessageToDict
from redis.exceptions import RedisError

from services.inference_adapter.core.context import conversation, digest, said
from services.inference_adapter.core.snapshot import CONTEXT, MOST_CONTEXT_BYTES, SNAPSHOT, Snapshot, pack, read, unpack
from services.inference_adapter.core.transcript import Transcript
from streamway.runtime.clock import Clock
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.asking import ask
from streamway.valkey.connection import Valkey
from streamway.valkey.link import Link
from streamway.valkey.session import Argument

_log = structlog.get_logger("adapter")

_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 5.0
# What waits, in turns and in bytes of requests and answers; beyond that the oldest is not kept: it is an aid, and the session's
# next turn brings all of it again.
_MOST_WAITING: Final = 256
_MOST_WAITING_BYTES: Final = 4 * MOST_CONTEXT_BYTES
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class _Turn:
    request: common_pb2.GenerationRequest
    transcript: Transcript
    usage: common_pb2.Usage | None
    at_ms: int
    bytes: int


class Snapshots:
    """The newest finished turn of each session. Nothing is kept of requests that are to leave no trace (durability `off`).

    `most_bytes` bounds a packed context; 0: none is kept.
    """

    def __init__(
        self, valkey: Valkey, link: Link | None, clock: Clock, worker: str, *, ttl_s: float, most_bytes: int
    ) -> None:
        self._valkey = valkey
        self._link = link
        self._clock = clock
        self._worker = worker
        self._ttl_ms = int(ttl_s * 1000)
        self._most_bytes = most_bytes
        self._turns: OrderedDict[tuple[str, str, str], _Turn] = OrderedDict()
        self._bytes = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Turns that wait."""
        return len(self._turns)

    def note(
        self, request: common_pb2.GenerationRequest, transcript: Transcript, usage: common_pb2.Usage | None
    ) -> None:
        """Has the session's snapshot written."""
        if not request.session or request.durability == common_pb2.DURABILITY_OFF:
            return
        name = (request.tenant, request.model, request.session)
        self._drop(name)
        size = request.ByteSize() + transcript.bytes
        if size > _MOST_WAITING_BYTES:
            return
        self._turns[name] = _Turn(request, transcript, usage, self._now_ms(), size)
        self._bytes += size
        while len(self._turns) > _MOST_WAITING or self._bytes > _MOST_WAITING_BYTES:
            self._drop(next(iter(self._turns)))
        self._wake.set()

    async def run(self) -> None:
        """Writes until cancelled."""
        pause_s = _PAUSE_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            # The last events of an answer are in the transcript by then, and the turns of a moment go together.
            await asyncio.sleep(pause_s)
            try:
                await self.write()
                pause_s = _PAUSE_S
            except (RedisError, OSError) as problem:
                if pause_s == _PAUSE_S:
                    _log.warning("snapshots_not_written", problem=type(problem).__name__, waiting=len(self._turns))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                self._wake.set()

    async def write(self) -> None:
        """Writes what waits. Raises RedisError or OSError; then what was not written still waits."""
        while self._turns:
            some = list(self._turns.items())[:_AT_ONCE]
            commands: list[tuple[Argument, ...]] = []
            for (tenant, model, session), turn in some:
                commands += self._put(keys.session(tenant, session), model, turn)
                # Packing long contexts takes milliseconds: what streams goes on in between.
                await asyncio.sleep(0)
            await ask(self._valkey, self._link, commands)
            for name, turn in some:
                if self._turns.get(name) is turn:
                    self._drop(name)

    async def read(self, tenant: str, model: str, session: str) -> tuple[Snapshot, bytes] | None:
        """A session's snapshot with its context; None when there is none, or an old one. Raises RedisError or OSError."""
        fields: list[Any] = await self._valkey.hmget(keys.session(tenant, session), [SNAPSHOT + model, CONTEXT + model])
        found, packed = fields
        snapshot = read(found) if found else None
        context = unpack(packed) if packed else None
        if snapshot is None or not context or digest(context) != snapshot.prefix:
            return None
        return (snapshot, context) if self._now_ms() - snapshot.at_ms < self._ttl_ms else None

    def _drop(self, name: tuple[str, str, str]) -> None:
        turn = self._turns.pop(name, None)
        if turn is not None:
            self._bytes -= turn.bytes

    def _put(self, key: str, model: str, turn: _Turn) -> list[tuple[Argument, ...]]:
        request, transcript, usage = turn.request, turn.transcript, turn.usage
        whole = not transcript.base and request.sampling.n <= 1
        context = conversation(request, said(transcript.events) if whole else "")
        packed = pack(context, self._most_bytes)
        snapshot = Snapshot(
            worker=self._worker,
            at_ms=turn.at_ms,
            prefix=digest(context),
            prompt_tokens=usage.prompt_tokens if usage is not None else 0,
            answer_tokens=usage.completion_tokens if usage is not None else 0,
            context_bytes=len(context),
            sampling=_sampling(request),
        )
        fields: tuple[Argument, ...] = (SNAPSHOT + model, snapshot.encode())
        forget: list[tuple[Argument, ...]] = []
        if packed is None:
            forget = [("HDEL", key, CONTEXT + model)]
        else:
            fields = (*fields, CONTEXT + model, packed)
        return [
            *forget,
            ("HSET", key, *fields),
            # The routers' part may have to live longer.
            ("PEXPIRE", key, self._ttl_ms, "NX"),
            ("PEXPIRE", key, self._ttl_ms, "GT"),
        ]

    def _now_ms(self) -> int:
        return int(self._clock.unix() * 1000)


def _sampling(request: common_pb2.GenerationRequest) -> dict[str, float]:
    said_so: dict[str, Any] = MessageToDict(request.sampling, preserving_proto_field_name=True)
    # JSON has 64-bit integers as text.
    return {name: float(f"{float(value):.7g}") if name != "seed" else int(value) for name, value in said_so.items()}
