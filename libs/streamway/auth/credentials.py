"""What a caller shows, and who that is."""

from __future__ import annotations

import hmac
import math

from streamway.auth.identity import Identity
from streamway.auth.tokens import Checked, TokenTable, looks_like_token
from streamway.errors import PermissionDenied, Unauthenticated
from streamway.runtime.clock import Clock, SystemClock
from streamway.tenancy import Tenancy, hash_key
from streamway.tenancy.watching import TenancyWatch


class Credentials:
    """Knows callers by their API key or their JSON Web Token, as the tenants are now.

    Keys are looked up by their hash, so that timing tells nothing about one.
    """

    def __init__(self, watch: TenancyWatch, clock: Clock | None = None) -> None:
        self._watch = watch
        self._clock = clock or SystemClock()
        self._tokens = TokenTable()

    @property
    def required(self) -> bool:
        """Some caller has credentials, so that others are strangers."""
        return self._watch.tenancy.has_credentials

    @property
    def lets_anybody_in(self) -> bool:
        """Callers that show nothing are served."""
        return bool(self._watch.tenancy.anonymous)

    @property
    def tenancy(self) -> Tenancy:
        """By which callers are known now; another object when anything has changed."""
        return self._watch.tenancy

    def now_unix(self) -> float:
        """Unix seconds, by the clock that tokens expire by."""
        return self._clock.unix()

    def identify(self, shown: str) -> Identity:
        """The caller that shows this, "" for one that shows nothing.

        Raises Unauthenticated, and PermissionDenied for a good token of a tenant that may do nothing.
        """
        return self.checked(shown).identity

    def checked(self, shown: str) -> Checked:
        """The same, and until when that counts if nothing changes."""
        tenancy = self._watch.tenancy
        if not shown or not tenancy.has_credentials:
            if tenancy.anonymous:
                return Checked(Identity(tenancy.anonymous), math.inf)
            raise Unauthenticated("credentials are missing")
        digest = hash_key(shown)
        tenant = tenancy.keys.get(digest)
        if tenant is not None:
            return Checked(Identity(tenant), math.inf)
        if tenancy.jwt is None or not looks_like_token(shown):
            raise Unauthenticated("the API key is unknown")
        checked = self._tokens.checked(digest, shown, tenancy.jwt, self._clock.unix())
        if tenancy.tenant(checked.identity.tenant) is None:
            raise PermissionDenied.tenant(checked.identity.tenant)
        return checked


def same_secret(given: str, expected: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())
