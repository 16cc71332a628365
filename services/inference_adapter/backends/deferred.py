"""An engine call that begins when something else has been done first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from services.inference_adapter.interfaces import EngineCall
from streamway.runtime.tasks import TaskScope


class DeferredCall:
    """`first` is done, then `begin` makes the call. Aborted before that, `give_up` is called instead, and `first` goes on to its
    end: an engine can't be stopped in it."""

    def __init__(
        self,
        scope: TaskScope,
        first: Callable[[], Awaitable[None]],
        begin: Callable[[], EngineCall],
        give_up: Callable[[], None],
    ) -> None:
        self._first, self._begin, self._give_up = first, begin, give_up
        self._call: EngineCall | None = None
        self._over = False
        scope.spawn(self._run(), "deferred-call")

    async def _run(self) -> None:
        await self._first()
        if not self._over:
            self._call = self._begin()

    def abort(self) -> None:
        """Stops it at once; idempotent."""
        if self._call is not None:
            self._call.abort()
        elif not self._over:
            self._give_up()
        self._over = True
