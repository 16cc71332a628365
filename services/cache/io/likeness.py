"""The semantic level: which entry answers a question that was put in other words."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog
import xxhash

from services.cache.core.books import Books
from services.cache.core.decide import (
    MOST_CANDIDATES,
    Asked,
    Candidate,
    Comparison,
    Decision,
    Outcome,
    decide,
)
from services.cache.core.query import Query
from services.cache.core.records import Alike, Change
from services.cache.core.semantic.options import SemanticOptions
from services.cache.core.semantic.partitions import Partitions, cost_bytes
from services.cache.core.semantic.standing import Standing, Standings
from services.cache.core.semantic.unsuited import unsuited
from services.cache.core.semantic.vouching import UNVOUCHED, Vouching
from services.cache.core.verifier import FeatureVerifier, Opinion
from services.cache.core.vetoes.text import Text
from services.cache.interfaces import Vector
from services.cache.io.encoding import Encoding
from services.cache.io.judge import Judge
from services.cache.io.searching import Searching
from services.cache.io.verifying import ask
from streamway.cachekey import partition_key
from streamway.runtime.recent import Recent
from streamway.runtime.threads import in_thread

_log = structlog.get_logger("cache")

# Texts whose vector and analysis are kept: a question that missed is stored a moment later, and popular ones come again.
_REMEMBERED: Final = 2048
# Questions whose fresh answer is waited for, and entries whose last question is known.
_MOST_AWAITED: Final = 4096
# Questions so alike with the same answer are one: a second entry would find nothing that the first does not.
_NEARLY_THE_SAME: Final = 0.995


class Found(NamedTuple):
    """An entry that answers, and how alike the questions are."""

    entry: str
    similarity: float


class _Awaited(NamedTuple):
    """A question whose fresh answer is compared with those of entries. `audit`: the first one would have been served.

    `unvouched` is an entry that another user may get once it has been right for this one, and how alike it was.
    """

    question: bytes
    audit: bool
    comparisons: tuple[Comparison, ...]
    unvouched: Found | None = None


class Likeness:
    """Finds, learns from what was found, and remembers.

    What the encoder does not give in `timeout_s` is a miss, and is not indexed. `stored` gives the text of an entry's answer,
    None for one that has gone. `evict` removes an entry. `clock` gives monotonic seconds.
    """

    def __init__(
        self,
        encoding: Encoding,
        searching: Searching,
        judge: Judge,
        options_of: Callable[[str], SemanticOptions],
        books: Books,
        stored: Callable[[str, str], str | None],
        evict: Callable[[str, str], object],
        *,
        timeout_s: float,
        clock: Callable[[], float],
        vouching: Vouching,
    ) -> None:
        self._encoding = encoding
        self._searching = searching
        self._judge = judge
        self._books = books
        self._stored = stored
        self._evict = evict
        self._timeout_s = timeout_s
        self._clock = clock
        self._vouching = vouching
        # Entries that are not found by likeness, since another one says the same.
        self.near_duplicates = 0
        self._partitions = searching.partitions
        # Other caches are told of wrong answers, once there is a way to them.
        self.tell: Callable[[Change], None] = _nobody
        self._standings = Standings(options_of)
        self._vectors: Recent[str, Vector] = Recent(_REMEMBERED)
        self._texts: Recent[str, Text] = Recent(_REMEMBERED)
        self._awaited: Recent[tuple[str, bytes], _Awaited] = Recent(_MOST_AWAITED)
        self._served: Recent[str, tuple[bytes, float]] = Recent(_MOST_AWAITED)

    @property
    def encoding(self) -> Encoding:
        """What it compares by."""
        return self._encoding

    @property
    def standings(self) -> Standings:
        """What it knows of its tenants."""
        return self._standings

    @property
    def partitions(self) -> Partitions:
        """What it can find."""
        return self._partitions

    def cost_bytes(self, query: Query) -> int:
        """What an entry will take here; 0 for one that is not indexed."""
        if not query.semantic or self._encoding.refused or unsuited(query.question):
            return 0
        return cost_bytes(query.question, self._encoding.dims)

    async def find(self, query: Query) -> Found | None:
        """An entry for a question that means the same, in the same context."""
        book = self._books.of(query.tenant)
        if not book.switch.ask():
            return None
        known = self._vectors.get(query.question) is not None
        decision = await self.decide(query)
        if decision is None:
            return None
        if not known:
            self._books.worked(query.tenant, "embedding", self._encoding.seconds_a_text)
        standing = self._standings.of(query.tenant)
        standing.decided(decision)
        near = {each.entry: self._partitions.question(each.entry) or "" for each in decision.judged}
        book.history.decided(query.question, decision, near, standing.threshold)
        question = _key(query.question)
        if decision.outcome is Outcome.AUDIT and decision.entry is not None:
            self._books.audited(query.tenant, decision.entry)
        if decision.reason == UNVOUCHED and decision.entry is not None:
            unvouched = Found(decision.entry, decision.similarity)
            self._awaited.put((query.tenant, query.key), _Awaited(question, True, (), unvouched))
        elif decision.compare:
            awaited = _Awaited(question, decision.outcome is Outcome.AUDIT, decision.compare)
            self._awaited.put((query.tenant, query.key), awaited)
        if decision.outcome is not Outcome.SERVE or decision.entry is None:
            return None
        self._served.put(decision.entry, (question, decision.similarity))
        return Found(decision.entry, decision.similarity)

    async def decide(self, query: Query) -> Decision | None:
        """What `find` would do, without doing it; None for a question that is not compared."""
        question = query.question
        if unsuited(question) or (vector := await self._vector(question)) is None:
            return None
        standing = self._standings.of(query.tenant)
        near = []
        for context in self._contexts(query, standing):
            near += await self._searching.nearest(partition_key(context, self._encoding.name), vector, MOST_CANDIDATES)
        candidates = [
            Candidate(each.entry, _key(each.question), self._text(each.question), each.similarity) for each in near
        ]
        asked = Asked(_key(question), self._text(question), _draw(query.request))
        decision = await self._with_opinions(candidates, asked, standing, query.tenant)
        return self._vouching.checked(query.tenant, query.user, decision)

    async def add(self, query: Query, entry: str, answer: str, alive: Callable[[], bool]) -> Alike | None:
        """Makes an entry findable that `cost_bytes` counted, if it is there once its vector is; gives what is to be kept."""
        context = self._contexts(query, self._standings.of(query.tenant))[0]
        if context != query.context and query.belongs_to_turns(answer):
            context = query.context
        made = await self.remake(Alike(context, query.question, "", b""), entry, alive)
        if made is not None:
            self._standings.of(query.tenant).used(entry)
        return made

    async def remake(self, alike: Alike, entry: str, alive: Callable[[], bool]) -> Alike | None:
        """The same for an entry whose vector another encoder made, or none."""
        vector = await self._vector(alike.question)
        if vector is None or not alive():
            return None
        name = self._encoding.name
        self._partitions.add(partition_key(alike.context, name), entry, alike.question, vector)
        return Alike(alike.context, alike.question, name, vector.astype("<f4").tobytes())

    def cost_of(self, alike: Alike) -> int:
        """See `Findable`."""
        return 0 if unsuited(alike.question) else cost_bytes(alike.question, self._encoding.dims)

    def adopt(self, entry: str, alike: Alike) -> bool:
        """See `Findable`."""
        name = self._encoding.name
        vector = alike.vector_of(name)
        if vector is None or len(vector) != self._encoding.dims:
            return False
        self._partitions.add(partition_key(alike.context, name), entry, alike.question, vector)
        return True

    async def learn(self, query: Query, fresh: str) -> None:
        """Compares a fresh answer with those that it was drawn for."""
        awaited = self._awaited.pop((query.tenant, query.key))
        if awaited is None:
            return
        if awaited.unvouched is not None:
            await self._vouch(query.tenant, awaited.question, awaited.unvouched, fresh)
        standing = self._standings.of(query.tenant)
        for comparison in awaited.comparisons:
            place = self._partitions.question(comparison.entry)
            stored = self._stored(query.tenant, comparison.entry)
            right = await self._judge.same(fresh, stored) if stored is not None else None
            if right is None or place is None:
                continue
            standing.compared(comparison, right)
            # Both answers, unless they have the same words: at most so much.
            self._books.worked(query.tenant, "embedding", 2 * self._encoding.seconds_a_text)
            if awaited.audit and not right:
                # Each audit stands for answers that were given without one.
                self._books.wrong(query.tenant, comparison.entry, 1 / comparison.share - 1)
            if awaited.audit and not right:
                self._wrong(query.tenant, comparison.entry, awaited.question, _key(place), comparison.similarity)
        lesson = standing.lesson()
        if lesson is not None:
            # A new one in its place: the old one goes on deciding while this one learns.
            verifier = FeatureVerifier()
            if await in_thread(functools.partial(verifier.fit, lesson)):
                standing.verifier = verifier

    def complain(self, tenant: str, entry: str) -> bool:
        """Somebody says that the last answer from an entry was wrong. False for one that answered no other question."""
        served, question = self._served.get(entry), self._partitions.question(entry)
        if served is None or question is None:
            return False
        self._books.wrong(tenant, entry, 1.0)
        self._wrong(tenant, entry, served[0], _key(question), served[1])
        return True

    def heard(self, change: Change) -> None:
        """Another cache has found that an entry was a wrong answer, and removes it where that follows."""
        if len(change.ids) == 1 and len(change.keys) == 2:
            asked, stored = change.keys
            self._standings.of(change.tenant).wrong_hits.report(change.ids[0], asked, stored, change.similarity)

    def forget(self, entry: str) -> None:
        """The entry is gone."""
        self._partitions.remove(entry)
        self._served.pop(entry)
        self._vouching.forget(entry)

    async def repeats(self, query: Query, text: str) -> bool:
        """A question that is nearly this one has an entry with this very answer; counted."""
        vector = await self._vector(query.question)
        if vector is None:
            return False
        context = self._contexts(query, self._standings.of(query.tenant))[0]
        near = await self._searching.nearest(partition_key(context, self._encoding.name), vector, 1)
        if not near or near[0].similarity < _NEARLY_THE_SAME or self._stored(query.tenant, near[0].entry) != text:
            return False
        self.near_duplicates += 1
        return True

    async def _vouch(self, tenant: str, asked: bytes, found: Found, fresh: str) -> None:
        place, stored = self._partitions.question(found.entry), self._stored(tenant, found.entry)
        right = await self._judge.same(fresh, stored) if stored is not None else None
        if right is None or place is None:
            return
        self._books.worked(tenant, "embedding", 2 * self._encoding.seconds_a_text)
        if right:
            self._vouching.right(found.entry)
        else:
            self._wrong(tenant, found.entry, asked, _key(place), found.similarity)

    def _wrong(self, tenant: str, entry: str, asked: bytes, stored: bytes, similarity: float) -> None:
        follows = self._standings.of(tenant).wrong(entry, asked, stored, similarity)
        self.tell(Change("wrong", tenant, (entry,), (asked, stored), similarity=similarity))
        _log.info("wrong_answer", entry=entry, floor=round(follows.floor, 4), evicted=follows.evict)
        if follows.evict:
            self._evict(tenant, entry)

    async def _with_opinions(
        self, candidates: list[Candidate], asked: Asked, standing: Standing, tenant: str
    ) -> Decision:
        opinions: dict[str, Opinion] = {}
        decision = decide(candidates, asked, standing.policy, opinions)
        while decision.outcome is Outcome.VERIFY and decision.pair is not None and decision.entry is not None:
            began = self._clock()
            opinions[decision.entry] = await ask(standing.verifier, decision.pair, self._timeout_s)
            self._books.worked(tenant, "verifying", self._clock() - began)
            decision = decide(candidates, asked, standing.policy, opinions)
        return decision

    def _contexts(self, query: Query, standing: Standing) -> list[bytes]:
        """Where to look, the first one the place for a new entry: without the turns before, where they do not matter."""
        own = query.own_context if standing.options.self_contained else None
        return [query.context] if own is None else [own, query.context]

    def _text(self, question: str) -> Text:
        return self._texts.get(question) or self._texts.put(question, Text(question))

    async def _vector(self, question: str) -> Vector | None:
        vector = self._vectors.get(question)
        if vector is None:
            try:
                async with asyncio.timeout(self._timeout_s):
                    vector = await self._encoding.encode(question)
            except TimeoutError:
                return None
            if vector is not None:
                self._vectors.put(question, vector)
        return vector


def _nobody(_: Change) -> None:
    """Where there are no others."""


def _key(question: str) -> bytes:
    return xxhash.xxh3_128_digest(question.encode())


def _draw(request: str) -> float:
    """In [0, 1), the same for the same request: a decision can be replayed."""
    return xxhash.xxh3_64_intdigest(request.encode()) / 2**64
