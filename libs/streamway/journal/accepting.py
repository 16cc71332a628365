"""Accept: the channel, then the record and the task copy, on one connection (docs/protocol-journal.md)."""

from __future__ import annotations

from collections.abc import Sequence

from streamway.journal.entries import Entry
from streamway.journal.functions import accept
from streamway.valkey.session import Argument, Reply, Session, StoreRefused


class Accepting:
    """One generation on its way into a lane. Call it with a session, and again with the next one when that is lost.

    `entries` open the channel; none: there will be no channel. `commands` put the task into its lane, the copy last; the
    others, which write the record `record`, are left out where an earlier session has done that. They are sent when the
    channel is known to be there *on this session*: a store that restarted in between without its newest second would
    otherwise have a task without a channel, which the worker drops.
    """

    def __init__(
        self,
        generation: str,
        entries: Sequence[Entry],
        ttl_ms: int,
        record: str,
        commands: Sequence[Sequence[Argument]],
    ) -> None:
        self._generation = generation
        self._entries = entries
        self._ttl_ms = ttl_ms
        self._record = record
        self._commands = commands
        self._asked = False
        # The copy may be in its lane, whatever became of the reply.
        self.sent = False

    @property
    def repeatable(self) -> bool:
        """It may be asked again after `sent`: of two copies the channel lets one begin. Without one both would run."""
        return bool(self._entries)

    async def __call__(self, session: Session) -> bool:
        """False: the channel was there before this was first asked for, and nothing was written.

        Raises LinkLost or StoreRefused.
        """
        commands = self._commands
        if self._entries:
            again, self._asked = self._asked, True
            if not await accept(session, self._generation, self._entries, self._ttl_ms):
                if not again:
                    return False
                # Ours. A worker may have read the copy already, so its state in the record is not ours any more.
                if len(commands) > 1 and await session.call("EXISTS", self._record):
                    commands = commands[-1:]
        elif self.sent:
            raise StoreRefused("a copy without a channel is not added twice")
        self.sent = True
        await _send(session, commands)
        return True


async def _send(session: Session, commands: Sequence[Sequence[Argument]]) -> None:
    """All in one write; returns when the store has executed them."""
    refused: list[Reply] = []

    def note(reply: Reply) -> None:
        if isinstance(reply, Exception):
            refused.append(reply)

    for command in commands[:-1]:
        session.send(command, note)
    await session.call(*commands[-1])
    if refused:
        raise StoreRefused(str(refused[0]))
