"""Makes generations of requests."""

from __future__ import annotations

from collections.abc import Callable

from services.inference_adapter.core.estimate import estimated_tokens
from services.inference_adapter.io.generation import Generation
from services.inference_adapter.io.journaled import JournaledGeneration
from services.inference_adapter.io.journaling import Journaling
from services.inference_adapter.io.workplace import Workplace
from streamway.errors import StreamwayError
from streamway.lanes import TakenTask
from streamway.v1 import common_pb2


class GenerationMaker:
    """Knows what a generation of either kind is made of.

    `on_end`: one without a channel has ended; `on_failed`: see `Generation`; `on_idle`, `on_waiting` and `on_left`: see
    `JournaledGeneration`.
    """

    def __init__(
        self,
        place: Workplace,
        journaling: Journaling,
        *,
        on_idle: Callable[[Generation], None],
        on_waiting: Callable[[Generation], None],
        on_end: Callable[[Generation], None],
        on_failed: Callable[[Generation, StreamwayError], None],
        on_left: Callable[[Generation], None],
    ) -> None:
        self._place = place
        self._journaling = journaling
        self._on_idle = on_idle
        self._on_waiting = on_waiting
        self._on_end = on_end
        self._on_failed = on_failed
        self._on_left = on_left

    def make(
        self, request: common_pb2.GenerationRequest, created_at: float, task: TakenTask | None, *, journaled: bool
    ) -> Generation:
        """Opens its transcript too. Raises ValueError when there is one already."""
        id_, place = request.generation, self._place
        now, request_bytes = place.clock.monotonic(), request.ByteSize()
        transcript = place.memory.open(id_, request.tenant, now, journaled=journaled, request_bytes=request_bytes)
        known = {"generation": id_, "model": request.model, "tenant": request.tenant, "baggage": request.baggage}
        context = place.hops.context(request.traceparent, **known)
        tokens = estimated_tokens(request)
        if not journaled or task is None:
            generation = Generation(
                request,
                transcript,
                place,
                context,
                created_at=created_at,
                task=task,
                tokens=tokens,
                on_end=self._on_end,
                on_failed=self._on_failed,
            )
            # What earlier calls have told of themselves is in the transcript before anybody reads it.
            generation.flush()
            return generation
        return JournaledGeneration(
            request,
            transcript,
            place,
            context,
            self._journaling,
            created_at=created_at,
            task=task,
            tokens=tokens,
            on_idle=self._on_idle,
            on_waiting=self._on_waiting,
            on_end=self._on_left,
        )
