"""Where a client's key stands, and which subprotocol it speaks."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from services.edge.core.ws_protocol import AUTH_PREFIX
from streamway.errors import InvalidArgument, Unauthenticated
from streamway.runtime.address import is_loopback


def bearer(authorization: str) -> str:
    """The key of an Authorization header; empty when there is none. Raises Unauthenticated for another scheme."""
    if not authorization.strip():
        return ""
    scheme, _, key = authorization.strip().partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthenticated("the Authorization header is not 'Bearer <key>'")
    return key.strip()


def offered(header: str) -> list[str]:
    """The subprotocols a client offers."""
    return [name.strip() for name in header.split(",") if name.strip()]


def key_of(protocols: list[str]) -> str:
    """The key a browser sends as a subprotocol, since it cannot set headers; empty when there is none.

    Raises Unauthenticated when it is not base64url.
    """
    for name in protocols:
        if name.startswith(AUTH_PREFIX):
            encoded = name.removeprefix(AUTH_PREFIX)
            try:
                return base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode()
            except (binascii.Error, ValueError):
                raise Unauthenticated(f"the key behind {AUTH_PREFIX} is not base64url") from None
    return ""


def check_subprotocol(protocols: list[str], spoken: Sequence[str]) -> None:
    """Refuses a client that speaks nothing of what is `spoken`. One that offers nothing speaks JSON."""
    if protocols and not any(name in spoken for name in protocols):
        names = ", ".join(name for name in protocols if not name.startswith(AUTH_PREFIX)) or "only a key"
        speaks = " and ".join(spoken)
        raise InvalidArgument("Sec-WebSocket-Protocol", f"offered was {names[:200]}; this edge speaks {speaks}")


def origin_allowed(origin: str, host: str, allowed: frozenset[str], *, open_to_all: bool) -> bool:
    """Whether a page of `origin` may use this edge. No origin: not a browser, or a page's own GET.

    `host` is the Host header. `open_to_all` is true while no keys are configured: then a page that got its name resolved to
    loopback would be "same origin", so the name itself must be a loopback one.
    """
    if origin and origin.lower() in allowed:
        return True
    # By text: urlsplit refuses what a hostile page may send.
    if origin and origin.lower().partition("://")[2] != host.lower():
        return False
    if not open_to_all or not host or _means_this_machine(host):
        return True
    return host.lower() in {name.partition("://")[2] for name in allowed}


@lru_cache(maxsize=256)
def _means_this_machine(host: str) -> bool:
    """Remembered, since it is asked with each request and clients send the same few."""
    return is_loopback(_host_name(host))


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return "?"
