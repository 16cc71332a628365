"""Asks the semantic level of the cache while a worker has the request already."""

from __future__ import annotations

import asyncio

from services.router.core import events
from services.router.core.cacheable import young_enough
from services.router.interfaces import AnswerCache, Opened
from services.router.io.books import Books
from services.router.io.journal import Journal
from services.router.metrics import RouterMetrics
from streamway.errors import StoreUnavailable
from streamway.runtime.tasks import TaskScope
from streamway.v1 import cache_pb2, common_pb2
from streamway.v1.cache_pb2 import CacheOutcome, LookupLevel

Answer = cache_pb2.CachedAnswer


class Beside:
    """A question put to the cache at the moment of its dispatch, and what becomes of the answer.

    A hit goes into the channel in the place of the worker's text, if the worker has not made a token by then
    (docs/adr/0042-a-lookup-beside-the-dispatch.md). `name` is this router's id; `budget_s` is for an answer that nobody waits
    for, `waited_s` for one that is waited for.
    """

    def __init__(
        self,
        cache: AnswerCache,
        journal: Journal,
        books: Books,
        scope: TaskScope,
        metrics: RouterMetrics,
        name: str,
        *,
        budget_s: float,
        waited_s: float,
    ) -> None:
        self._cache = cache
        self._journal = journal
        self._books = books
        self._scope = scope
        self._metrics = metrics
        self._name = name
        self._budget_s = budget_s
        self._waited_s = waited_s

    def ask(self, request: common_pb2.GenerationRequest) -> asyncio.Task[Answer | None]:
        """Puts the question. The task gives an answer that the caller may have, and never raises."""
        asked = common_pb2.GenerationRequest()
        asked.CopyFrom(request)  # the dispatch completes its own
        return self._scope.spawn(self._find(asked), "cache-beside")

    async def soon(self, question: asyncio.Task[Answer | None]) -> Answer | None:
        """The answer, if it comes in the time of one that is waited for."""
        await asyncio.wait({question}, timeout=self._waited_s)
        if question.done():
            return question.result()
        question.cancel()
        return None

    def dispatched(self, generation: str, opened: Opened, question: asyncio.Task[Answer | None]) -> None:
        """The request is at a worker: from now on the quicker of both answers it."""
        alone = opened.place is not None and not opened.follows and not opened.attached_to
        if alone and opened.durable:
            self._scope.spawn(self._overtake(generation, question), "cache-overtake")
        else:
            # It reads what is another's, or has no channel by now.
            question.cancel()
            self._metrics.cache_lookups.labels("dropped").inc()

    async def _find(self, request: common_pb2.GenerationRequest) -> Answer | None:
        found = await self._cache.lookup(request, LookupLevel.LOOKUP_LEVEL_SEMANTIC, self._budget_s)
        if found is None:
            self._metrics.cache_lookups.labels("unavailable").inc()
            return None
        if found.outcome != CacheOutcome.CACHE_OUTCOME_HIT_SEMANTIC or not young_enough(request, found.answer.age_s):
            self._metrics.cache_lookups.labels("miss").inc()
            return None
        return found.answer

    async def _overtake(self, generation: str, question: asyncio.Task[Answer | None]) -> None:
        answer = await question
        if answer is None:
            return
        written = False
        if generation in self._books:
            try:
                written = await self._journal.overtake(
                    generation, self._name, lambda start: events.overtaking(answer, "semantic", start)
                )
            except StoreUnavailable:
                # It may have been written all the same: then the worker finds that out with its first token.
                written = False
        if written:
            self._books.answered(generation)
        self._metrics.cache_lookups.labels("semantic" if written else "late").inc()
