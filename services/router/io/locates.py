"""Answers where generations are: to a call, or to the many questions of a `Connect` stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from services.router.io.locating import Locator
from services.router.io.outbox import Outbox
from streamway.auth import Identity
from streamway.errors import Internal, InvalidArgument, StreamwayError, TooManyGenerations, to_status
from streamway.runtime.ids import new_secret_id
from streamway.runtime.tasks import TaskScope
from streamway.v1 import router_pb2

_log = structlog.get_logger("router")
_LONGEST_WAIT_S: Final = 60.0
# A quarter of a million bytes of questions; an edge asks once for each stream that has lost its worker.
_MOST_WAITING: Final = 20_000


async def find(
    locator: Locator, request: router_pb2.GetGenerationRequest, tenant: str
) -> router_pb2.GetGenerationResponse:
    """What record and channel say, and where it can be read now. Raises GenerationNotFound and others."""
    if not request.generation:
        raise InvalidArgument("generation", "must not be empty")
    known = await locator.wait(
        request.generation,
        tenant,
        wait_s=min(request.wait_ms / 1000, _LONGEST_WAIT_S),
        above_epoch=request.above_epoch,
        lost_worker=request.lost_worker,
    )
    return router_pb2.GetGenerationResponse(
        generation=request.generation,
        state=known.state,
        worker=known.worker,
        source=locator.source_of(known.place),
        model=known.model,
        session=known.session,
        epoch=known.epoch,
        cursor=known.cursor,
        durability=known.durability,
    )


class Locates:
    """The questions of one stream. Those of one message are asked of the store in one write, and answers share messages."""

    def __init__(
        self, identity: Identity, locator: Locator, scope: TaskScope, outbox: Outbox, settled: Callable[[], None]
    ) -> None:
        self._identity = identity
        self._locator = locator
        self._scope = scope
        self._outbox = outbox
        self._settled = settled
        self._waiting: dict[int, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, question: router_pb2.Locate) -> None:
        """Answers later, in the outbox. Never raises."""
        number = question.number
        if not number or number in self._waiting:
            self._refuse(number, InvalidArgument("locate.number", "must not be 0, and unique among those that wait"))
        elif len(self._waiting) >= _MOST_WAITING:
            self._refuse(number, TooManyGenerations("stream of questions", _MOST_WAITING))
        else:
            self._waiting[number] = self._scope.spawn(self._answer(number, question.request), "locate")

    def close(self, error: StreamwayError | None = None) -> None:
        """Nothing more is answered; with an error those that wait are told it."""
        waiting, self._waiting = self._waiting, {}
        for number, task in waiting.items():
            task.cancel()
            if error is not None:
                self._refuse(number, error)

    async def _answer(self, number: int, request: router_pb2.GetGenerationRequest) -> None:
        try:
            found = await find(self._locator, request, self._identity.tenant_for(request.tenant))
            self._outbox.answer(router_pb2.Located(number=number, found=found))
        except StreamwayError as refused:
            self._refuse(number, refused)
        except Exception:  # noqa: BLE001 — one question's fault must not leave the others without answers
            request_id = new_secret_id()
            _log.exception("locate_failed", generation=request.generation, request_id=request_id)
            self._refuse(number, Internal(request_id))
        if self._waiting.pop(number, None) is not None:
            self._settled()

    def _refuse(self, number: int, error: StreamwayError) -> None:
        self._outbox.answer(router_pb2.Located(number=number, refused=to_status(error)))
