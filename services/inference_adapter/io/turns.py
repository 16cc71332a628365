"""What a worker makes of its sessions' turns beside answering them: snapshots, counts of system prompts, warming."""

from __future__ import annotations

import asyncio
from typing import Final

from redis.exceptions import RedisError

from services.inference_adapter.core.context import beginning, digest
from services.inference_adapter.core.transcript import Transcript
from services.inference_adapter.io.prompts import Prompts
from services.inference_adapter.io.snapshots import Snapshots
from services.inference_adapter.io.warmer import Warmer
from streamway.v1 import common_pb2

_COUNTS_EVERY_S: Final = 2.0


class SessionTurns:
    """The `Turns` of a worker. `warmer` None: nothing is warmed here; what others may warm is counted all the same."""

    def __init__(self, snapshots: Snapshots, prompts: Prompts, warmer: Warmer | None) -> None:
        self._snapshots = snapshots
        self._prompts = prompts
        self._warmer = warmer

    def began(self, request: common_pb2.GenerationRequest) -> None:
        """Real work: warming makes room."""
        if self._warmer is not None:
            self._warmer.began((request.tenant, request.model, request.session))

    def finished(
        self, request: common_pb2.GenerationRequest, transcript: Transcript, usage: common_pb2.Usage | None
    ) -> None:
        """A turn has ended."""
        self._snapshots.note(request, transcript, usage)
        kept = request.durability != common_pb2.DURABILITY_OFF
        if self._warmer is None and not kept:
            return
        context = beginning(request)
        if context and kept:
            self._prompts.seen(request.tenant, request.model, context)
        if self._warmer is not None:
            cached = usage.cached_prompt_tokens if usage is not None else 0
            if request.session:
                self._warmer.used((request.tenant, request.model, request.session), cached)
            if context:
                self._warmer.used((request.tenant, request.model, digest(context)), cached)

    async def write(self) -> None:
        """Writes what waits, at the end. Raises RedisError or OSError."""
        await self._snapshots.write()
        await self._prompts.write()

    def stop(self) -> None:
        """Nothing more is warmed that is under way."""
        if self._warmer is not None:
            self._warmer.stop()

    async def run(self) -> None:
        """The loops, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._snapshots.run(), name="snapshots")
            group.create_task(self._count(), name="prompts")
            if self._warmer is not None:
                group.create_task(self._warmer.run(), name="warmer")

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(_COUNTS_EVERY_S)
            try:
                await self._prompts.write()
            except (RedisError, OSError):
                continue  # counts of two seconds are lost
