"""Lua scripts in the store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from streamway.valkey.session import Argument, Reply, Session, StoreRefused


class Script:
    """A Lua script on one key, or on several of one hash tag, sent by its hash, in full only where that is unknown."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    async def call(self, session: Session, key: str | Sequence[str], *arguments: Argument) -> Reply:
        """Runs it. Raises LinkLost or StoreRefused."""
        on = (key,) if isinstance(key, str) else key
        try:
            return await session.call("EVALSHA", self.sha, len(on), *on, *arguments)
        except StoreRefused as refused:
            if not str(refused).startswith("NOSCRIPT"):
                raise
        return await session.call("EVAL", self.source, len(on), *on, *arguments)

    def send(
        self,
        session: Session,
        key: str | Sequence[str],
        arguments: Sequence[Argument],
        on_reply: Callable[[Reply], None],
    ) -> None:
        """Runs it without waiting."""
        on = (key,) if isinstance(key, str) else key

        def again(reply: Reply) -> None:
            if isinstance(reply, Exception) and str(reply).startswith("NOSCRIPT"):
                session.send(("EVAL", self.source, len(on), *on, *arguments), on_reply)
            else:
                on_reply(reply)

        session.send(("EVALSHA", self.sha, len(on), *on, *arguments), again)
