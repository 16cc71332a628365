"""What a caller shows, and who that is."""

from __future__ import annotations

import hmac

from streamway.auth.identity import Identity
from streamway.errors import Unauthenticated
from streamway.tenancy import hash_key
from streamway.tenancy.watching import TenancyWatch


class Credentials:
    """Knows callers by their API key, as the tenants are now.

    Keys are looked up by their hash, so that timing tells nothing about one.
    """

    def __init__(self, watch: TenancyWatch) -> None:
        self._watch = watch

    @property
    def required(self) -> bool:
        """Some caller has credentials, so that others are strangers."""
        return self._watch.tenancy.has_credentials

    @property
    def lets_anybody_in(self) -> bool:
        """Callers that show nothing are served."""
        return bool(self._watch.tenancy.anonymous)

    def identify(self, shown: str) -> Identity:
        """The caller that shows this, "" for one that shows nothing. Raises Unauthenticated."""
        tenancy = self._watch.tenancy
        if not shown or not tenancy.has_credentials:
            if tenancy.anonymous:
                return Identity(tenancy.anonymous)
            raise Unauthenticated("credentials are missing")
        tenant = tenancy.keys.get(hash_key(shown))
        if tenant is None:
            raise Unauthenticated("the API key is unknown")
        return Identity(tenant)


def same_secret(given: str, expected: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())
