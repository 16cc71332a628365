"""From the channel to a worker that goes on: the way that always leads there, one step after the other."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from streamway.attach import AttachSink
from streamway.errors import GenerationNotFound, StreamwayError
from streamway.following.catching_up import Found
from streamway.following.ports import Located
from streamway.following.search import Search
from streamway.following.standing import Standing
from streamway.journal import Cursor
from streamway.journal.follower import FollowerListener
from streamway.v1 import common_pb2
from streamway.valkey.session import LinkLost, Session, StoreRefused

_LOCATE_S: Final = 5.0  # one question to `locate` waits so long
_FIRST_WORD_S: Final = 1.0  # a worker that took a cursor and refuses it says so at once


class Traveller(AttachSink, FollowerListener, Protocol):
    """Who is on the way: gets what worker and channel say."""


class Journey:
    """One, until the reader's turn changes. `problem` is what is told if no worker goes on."""

    __slots__ = ("_at", "_search", "_traveller", "_turn")

    def __init__(self, at: Standing, traveller: Traveller, lost_worker: str, problem: StreamwayError | None) -> None:
        self._at = at
        self._traveller = traveller
        self._turn = at.turn
        self._search = Search(at.generation, lost_worker, problem)

    async def run(self) -> None:
        """Steps until it has arrived, or there is nowhere to go."""
        self._at.heard_nothing()
        while self._here() and not await self._step():
            pass

    async def run_without_store(self, *, foreign: bool = False) -> None:
        """The same for one of whom the store can't tell, or doesn't: a router may know whose it is.

        One that is `foreign`, another tenant's, ends as one that nobody knows, after as long a time.
        """
        located = await self._locate("", wait_s=0.0)
        if not self._here():
            return
        if foreign and isinstance(located, Located):
            located = GenerationNotFound(self._at.generation)
        if isinstance(located, StreamwayError):
            self._at.lose(located)
            return
        self._at.durable = located.durable
        await self.run()

    def _here(self) -> bool:
        return self._turn == self._at.turn

    async def _step(self) -> bool:
        """One look at the channel, and one for the worker. True: the search is over."""
        at, search = self._at, self._search
        search.found = await self._read_channel()
        if not self._here():
            return True
        if search.found is Found.ENDED:
            at.end()
            return True
        if at.announcing is not None and search.refuted:
            at.lose(search.verdict(hopeless=True), search.found)
            return True
        if search.pause_s:
            await self._wait_for_news(search.pause_s)
        located = await self._locate(search.lost_worker, wait_s=_LOCATE_S if search.lost_worker else 0.0)
        if not self._here():
            return True
        if isinstance(located, Located) and located.place is not None and search.reaches(located, at.cursor):
            at.durable = located.durable
            if not located.durable:
                at.begin_without_channel()
            at.unfollow()
            at.subscribe(located.place, self._traveller)
            if at.announcing is not None:
                await self._first_word()
            return True
        hopeless = search.not_reached(located)
        if hopeless or at.heard_nothing() >= at.ports.takeover_wait_s:
            at.lose(search.verdict(hopeless=hopeless), search.found)
            return True
        return False

    async def _read_channel(self) -> Found:
        """Everything up to its tail; from then on, what is appended. Announces where it can be known."""
        at = self._at
        if at.following is not None:
            return Found.TAIL
        if not at.durable:
            return Found.NOTHING
        found = Found.UNREADABLE
        try:
            async with asyncio.timeout(at.ports.store_wait_s):
                session = await at.ports.journal.session()
            found, tail = await self._catch_up(session)
            if found is Found.BEHIND and self._here() and await self._write_ahead(session):
                found, tail = await self._catch_up(session)
        except (TimeoutError, LinkLost, StoreRefused, ValueError):
            # The last: an entry that is none of ours.
            return found
        if found is Found.TAIL and at.ports.follower is not None and self._here():
            at.following = at.ports.follower.follow(at.generation, tail, self._traveller)
        return found

    async def _catch_up(self, session: Session) -> tuple[Found, Cursor]:
        at = self._at
        return await at.catching_up.run(session, self._here, at.announce if at.announcing is not None else None)

    async def _write_ahead(self, session: Session) -> bool:
        """The channel stops before this reader: whoever takes over must start behind what was shown."""
        ahead = self._at.ahead
        return ahead is not None and await ahead.write(session, self._at.generation)

    async def _locate(self, lost_worker: str, *, wait_s: float) -> Located | StreamwayError:
        at = self._at
        try:
            return await at.ports.locate(
                at.generation,
                at.tenant,
                wait_s=wait_s,
                above_epoch=at.cursor.epoch if lost_worker else 0,
                lost_worker=lost_worker,
            )
        except StreamwayError as refused:
            return refused

    async def _wait_for_news(self, pause_s: float) -> None:
        news = self._at.news = self._at.news or asyncio.Event()
        news.clear()
        try:
            async with asyncio.timeout(pause_s):
                await news.wait()
        except TimeoutError:
            pass

    async def _first_word(self) -> None:
        """A worker that is asked to go on from a cursor the channel could not judge refuses at once, or has it."""
        await asyncio.sleep(_FIRST_WORD_S)
        at = self._at
        if self._here() and at.announcing is not None:
            at.announce(common_pb2.Resumed(recovered=True, after=str(at.announcing)))
            at.flush()
