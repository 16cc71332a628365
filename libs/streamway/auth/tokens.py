"""JSON Web Tokens: checked once, then known from a table until they expire."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

import jwt
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    MissingRequiredClaimError,
    PyJWTError,
)

from streamway.auth.identity import Identity
from streamway.errors import Unauthenticated
from streamway.tenancy import TENANT_NAME, JwtRules

MOST_TOKEN_BYTES: Final = 8192
_MOST_SESSION: Final = 256
_REQUIRED: Final = ("exp", "iss", "aud")
# For these PyJWT looks at the wall clock itself; the time is checked here, with the clock that tests own.
_OPTIONS: Final[dict[str, Any]] = {
    "require": list(_REQUIRED),
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


class Checked(NamedTuple):
    """A token that is good until `until`, Unix seconds, leeway included."""

    identity: Identity
    until: float


def looks_like_token(shown: str) -> bool:
    """Three parts between dots, as no key of ours has them."""
    return shown.count(".") == 2 and shown.isascii()


def check(token: str, rules: JwtRules, now_unix: float) -> Checked:
    """Whose token it is. Raises Unauthenticated with a reason that repeats nothing of the token.

    The algorithm is the configured one, whatever the token's header says: nobody turns a public key into an HMAC secret.
    """
    if len(token) > MOST_TOKEN_BYTES:
        raise Unauthenticated(f"the token is longer than {MOST_TOKEN_BYTES} bytes")
    try:
        header = jwt.get_unverified_header(token)
        if header.get("alg") != rules.algorithm:
            raise Unauthenticated(f"the token is not signed with {rules.algorithm}")
        if "crit" in header:
            raise Unauthenticated("the token asks for extensions that are not known here")
        claims = jwt.decode(
            token,
            _key(rules, header.get("kid", "")),
            algorithms=[rules.algorithm],
            issuer=rules.issuer,
            audience=rules.audience,
            options=_OPTIONS,  # type: ignore[arg-type] # a plain dict of its keys
        )
    except PyJWTError as problem:
        raise Unauthenticated(_told(problem)) from None
    except (ValueError, TypeError, RecursionError, AttributeError, KeyError, OverflowError):
        raise Unauthenticated("the token cannot be read") from None
    until = _time(claims, "exp") + rules.leeway_s
    if now_unix >= until:
        raise Unauthenticated("the token has expired")
    if "nbf" in claims and now_unix < _time(claims, "nbf") - rules.leeway_s:
        raise Unauthenticated("the token does not count yet")
    tenant = claims.get(rules.tenant_claim)
    if not isinstance(tenant, str) or not TENANT_NAME.fullmatch(tenant):
        raise Unauthenticated(f"the token's claim {rules.tenant_claim!r} names no tenant")
    return Checked(Identity(tenant, session=_session(claims, rules)), until)


class TokenTable:
    """Tokens that were good, by hash, until they expire. At most `most`; the one not seen for longest goes first."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._known: OrderedDict[str, Checked] = OrderedDict()
        self._rules: JwtRules | None = None

    def __len__(self) -> int:
        return len(self._known)

    def checked(self, digest: str, token: str, rules: JwtRules, now_unix: float) -> Checked:
        """The caller, and until when; `digest` is the token's hash. Raises Unauthenticated."""
        if rules is not self._rules:
            # What was good under other rules or keys proves nothing now.
            self._known.clear()
            self._rules = rules
        found = self._known.get(digest)
        if found is not None and now_unix < found.until:
            self._known.move_to_end(digest)
            return found
        self._known.pop(digest, None)
        checked = check(token, rules, now_unix)
        self._known[digest] = checked
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return checked


def _key(rules: JwtRules, kid: Any) -> Any:
    if rules.algorithm == "HS256":
        return rules.keys[""]
    if len(rules.keys) == 1 and not kid:
        return next(iter(rules.keys.values()))
    found = rules.keys.get(kid) if isinstance(kid, str) else None
    if found is None:
        raise Unauthenticated("the token is signed with a key that is not known here")
    return found


def _time(claims: dict[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise Unauthenticated(f"the token's claim {name!r} is no time")
    return float(value)


def _session(claims: dict[str, Any], rules: JwtRules) -> str:
    """What the session key is made of; a token without it is no worse, and goes home by the next in line."""
    value = claims.get(rules.session_claim) if rules.session_claim else None
    return value[:_MOST_SESSION] if isinstance(value, str) else ""


def _told(problem: PyJWTError) -> str:
    if isinstance(problem, InvalidAudienceError):
        return "the token is meant for another audience"
    if isinstance(problem, InvalidIssuerError):
        return "the token is from another issuer"
    if isinstance(problem, MissingRequiredClaimError):
        return f"the token lacks the claim {problem.claim!r}"
    if isinstance(problem, ExpiredSignatureError | ImmatureSignatureError):
        return "the token does not count now"
    return "the token is not valid"
