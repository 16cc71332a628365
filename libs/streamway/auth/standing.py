"""Whom a connection was let in as, for as long as it stays open."""

from __future__ import annotations

from streamway.auth.credentials import Credentials
from streamway.auth.identity import Identity
from streamway.errors import Unauthenticated


class Standing:
    """A caller that was let in once and for all: a service of ours, whose token lives as long as the process."""

    __slots__ = ("identity",)

    def __init__(self, identity: Identity) -> None:
        self.identity = identity

    def check(self) -> None:
        """Raises Unauthenticated, or PermissionDenied, when the caller would not be let in any more, or as somebody else."""


class ShownStanding(Standing):
    """A caller that was let in by what it showed. Keys are removed and tokens expire while connections are open: whoever
    holds one asks again. What was shown stays in memory with it, and is told to nobody.

    Raises what `Credentials.identify` raises.
    """

    __slots__ = ("_credentials", "_shown", "_tenancy", "_until")

    def __init__(self, credentials: Credentials, shown: str) -> None:
        identity, self._until = credentials.checked(shown)
        super().__init__(identity)
        self._credentials = credentials
        self._shown = shown
        self._tenancy = credentials.tenancy

    def check(self) -> None:
        """As above. Cheap while nothing has changed: no signature is looked at again."""
        credentials = self._credentials
        if credentials.tenancy is self._tenancy and credentials.now_unix() < self._until:
            return
        identity, until = credentials.checked(self._shown)
        if identity != self.identity:
            raise Unauthenticated("these credentials belong to somebody else now")
        self._tenancy, self._until = credentials.tenancy, until
