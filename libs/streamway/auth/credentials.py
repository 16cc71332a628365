"""What a caller shows, and who that is."""

from __future__ import annotations

import hmac

from streamway.auth.identity import Identity
from streamway.auth.tokens import TokenTable, looks_like_token
from streamway.errors import PermissionDenied, Unauthenticated
from streamway.runtime.clock import Clock, SystemClock
from streamway.tenancy import hash_key
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

    def identify(self, shown: str) -> Identity:
        """The caller that shows this, "" for one that shows nothing.

        Raises Unauthenticated, and PermissionDenied for a good token of a tenant that may do nothing.
        """
        tenancy = self._watch.tenancy
        if not shown or not tenancy.has_credentials:
            if tenancy.anonymous:
                return Identity(tenancy.anonymous)
            raise Unauthenticated("credentials are missing")
        digest = hash_key(shown)
        tenant = tenancy.keys.get(digest)
        if tenant is not None:
            return Identity(tenant)
        if tenancy.jwt is None or not looks_like_token(shown):
            raise Unauthenticated("the API key is unknown")
        identity = self._tokens.identify(digest, shown, tenancy.jwt, self._clock.unix())
        if tenancy.tenant(identity.tenant) is None:
            raise PermissionDenied.tenant(identity.tenant)
        return identity


def same_secret(given: str, expected: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())
