"""Following many channels on one blocking connection: what comes after their tails, as it comes.

The live path is gRPC; this one serves readers whose worker they can't reach. One `XREAD BLOCK` names every followed channel.
A reader that joins must not wait for the next entry of another: the block is broken off with `CLIENT UNBLOCK`.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import structlog

from streamway.journal.cursor import Cursor
from streamway.journal.entries import Entry, parse_entries
from streamway.valkey import keys
from streamway.valkey.session import Argument, LinkLost, Session, Sessions, StoreRefused

_log = structlog.get_logger("follower")
_BLOCK_MS: Final = 5_000
_MOST_ENTRIES: Final = 64  # of each channel in one reply
_LOOK_S: Final = 15.0


class FollowerListener(Protocol):
    """A reader. Called on the event loop; must not raise, nor keep it waiting: what it can't take it drops and reads later."""

    def entries(self, entries: list[Entry]) -> None:
        """What was appended, in order."""
        ...

    def interrupted(self) -> None:
        """The connection broke, or the channel is gone; nothing more comes. Read the channel from your cursor, since the
        store may have lost what you have seen, and follow again."""
        ...


class Following:
    """One reader of one channel, until `close`."""

    __slots__ = ("_follower", "after", "generation", "listener")

    def __init__(self, follower: Follower, generation: str, after: Cursor, listener: FollowerListener) -> None:
        self._follower = follower
        self.generation = generation
        self.after = after
        self.listener = listener

    def close(self) -> None:
        """Nothing more comes."""
        self._follower.forget(self)


class Follower:
    """Reads on `blocking`, a link that nobody else uses and whose reply timeout is over 5 s; wakes it from `ordinary`."""

    def __init__(self, blocking: Sessions, ordinary: Sessions) -> None:
        self._blocking = blocking
        self._ordinary = ordinary
        self._followings: dict[str, list[Following]] = {}
        self._changed = asyncio.Event()
        self._blocked_as: int | None = None

    def __len__(self) -> int:
        return sum(map(len, self._followings.values()))

    def follow(self, generation: str, after: Cursor, listener: FollowerListener) -> Following:
        """Tells `listener` of every entry whose id is above `after`: the tail up to which it has read the channel."""
        following = Following(self, generation, after, listener)
        self._followings.setdefault(keys.response(generation), []).append(following)
        self._changed.set()
        return following

    def forget(self, following: Following) -> None:
        """Ends a following; the same as its `close`."""
        key = keys.response(following.generation)
        rest = [each for each in self._followings.get(key, ()) if each is not following]
        if rest:
            self._followings[key] = rest
        else:
            self._followings.pop(key, None)

    async def run(self) -> None:
        """Reads until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wake(), name="follower-wake")
            group.create_task(self._look(), name="follower-look")
            while True:
                session = await self._blocking.session()
                try:
                    await self._read(session)
                except LinkLost:
                    self._interrupt_all()
                except StoreRefused as refused:
                    _log.warning("follower_refused", problem=str(refused)[:100])
                    self._interrupt_all()
                    await asyncio.sleep(1.0)

    async def _read(self, session: Session) -> None:
        me = int(await session.call("CLIENT", "ID"))
        while True:
            if not self._followings:
                await self._changed.wait()
            self._changed.clear()
            names = list(self._followings)
            if not names:
                continue
            after = [str(min(following.after for following in self._followings[name])) for name in names]
            command: list[Argument] = ["XREAD", "COUNT", _MOST_ENTRIES, "BLOCK", _BLOCK_MS, "STREAMS", *names, *after]
            self._blocked_as = me
            try:
                reply = await session.call(*command)
            finally:
                self._blocked_as = None
            for name, rows in reply or ():
                self._deliver(name.decode(), parse_entries(rows))

    def _deliver(self, name: str, entries: list[Entry]) -> None:
        for following in list(self._followings.get(name, ())):
            fresh = [entry for entry in entries if entry.id > following.after]
            if fresh:
                following.after = fresh[-1].id
                following.listener.entries(fresh)

    def _interrupt_all(self) -> None:
        followings, self._followings = self._followings, {}
        for group in followings.values():
            for following in group:
                following.listener.interrupted()

    async def _wake(self) -> None:
        """Breaks the block off when the set of channels has grown since it began."""
        while True:
            await self._changed.wait()
            if self._blocked_as is not None:
                try:
                    session = await self._ordinary.session()
                    await session.call("CLIENT", "UNBLOCK", self._blocked_as or 0)
                except (LinkLost, StoreRefused):
                    pass
            # The command may have come before the block did: until the reader has looked, again.
            await asyncio.sleep(0.001)

    async def _look(self) -> None:
        """A channel that expires wakes no XREAD."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                session = await self._ordinary.session()
                for name in list(self._followings):
                    if await session.call("EXISTS", name) == 0:
                        for following in self._followings.pop(name, ()):
                            following.listener.interrupted()
            except (LinkLost, StoreRefused):
                continue
