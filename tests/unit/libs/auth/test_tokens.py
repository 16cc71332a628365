"""JSON Web Tokens: which are believed, for how long, and what of them is used."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm

from streamway.auth import Credentials, Identity
from streamway.auth.tokens import MOST_TOKEN_BYTES, TokenTable, check
from streamway.config import SharedSettings
from streamway.errors import PermissionDenied, Unauthenticated
from streamway.runtime.process import StartError
from streamway.tenancy import JwtRules, load_tenancy
from streamway.tenancy.watching import TenancyWatch

NOW = 1_800_000_000.0
SECRET = b"0123456789abcdef0123456789abcdef"
PRIVATE = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC_PEM = PRIVATE.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
HS = JwtRules("https://issuer", "streamway", "HS256", "tenant", "sid", 30, {"": SECRET})
RS = JwtRules("https://issuer", "streamway", "RS256", "tenant", "sid", 30, {"k1": PRIVATE.public_key()})


class At:
    """A clock that stands."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def unix(self) -> float:
        return self.now


def claims(**more: Any) -> dict[str, Any]:
    made = {"iss": "https://issuer", "aud": "streamway", "exp": int(NOW) + 600, "tenant": "acme", "sid": "s-1"} | more
    return {name: value for name, value in made.items() if value is not None}


def hs(**more: Any) -> str:
    return jwt.encode(claims(**more), SECRET, "HS256")


def rs(kid: str | None = "k1", **more: Any) -> str:
    return jwt.encode(claims(**more), PRIVATE, "RS256", headers={"kid": kid} if kid else None)


def by_hand(header: dict[str, Any], body: Any, key: bytes) -> str:
    """A token that no library would sign."""
    parts = [json.dumps(part).encode() for part in (header, body)]
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = hmac.new(key, signed, hashlib.sha256).digest()
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def test_a_good_token_gives_tenant_and_session() -> None:
    for token, rules in ((hs(), HS), (rs(), RS), (rs(kid=None), RS), (hs(aud=["other", "streamway"]), HS)):
        found = check(token, rules, NOW)
        assert found.identity == Identity("acme", session="s-1")
        assert found.until == NOW + 630


BAD = [
    ("no expiry", hs(exp=None), HS, "lacks the claim 'exp'"),
    ("no issuer", hs(iss=None), HS, "lacks the claim 'iss'"),
    ("no audience", hs(aud=None), HS, "lacks the claim 'aud'"),
    ("expired", hs(exp=int(NOW) - 31), HS, "has expired"),
    ("expired long ago in a list", hs(exp=[1]), HS, "."),
    ("expiry no number", hs(exp=True), HS, "."),
    ("not yet", hs(nbf=int(NOW) + 31), HS, "does not count yet"),
    ("other issuer", hs(iss="https://evil"), HS, "another issuer"),
    ("other audience", hs(aud="evil"), HS, "another audience"),
    ("other secret", jwt.encode(claims(), b"x" * 32, "HS256"), HS, "not valid"),
    ("other algorithm of the family", by_hand({"alg": "HS512"}, claims(), SECRET), HS, "not signed with HS256"),
    ("the public key as a secret", by_hand({"alg": "HS256", "kid": "k1"}, claims(), PUBLIC_PEM), RS, "with RS256"),
    ("no signature", jwt.encode(claims(), None, "none"), HS, "not signed with HS256"),
    ("none for RS", jwt.encode(claims(), None, "none"), RS, "not signed with RS256"),
    ("unknown key", rs(kid="k2"), RS, "a key that is not known"),
    ("kid is a list", by_hand({"alg": "RS256", "kid": ["k1"]}, claims(), SECRET), RS, "."),
    ("extensions", by_hand({"alg": "HS256", "crit": ["x"], "x": 1}, claims(), SECRET), HS, "."),
    ("no tenant", hs(tenant=None), HS, "names no tenant"),
    ("tenant is a list", hs(tenant=["acme"]), HS, "names no tenant"),
    ("tenant with a colon", hs(tenant="a:b"), HS, "names no tenant"),
    ("claims are a list", by_hand({"alg": "HS256"}, [1], SECRET), HS, "."),
    ("too long", hs(pad="x" * MOST_TOKEN_BYTES), HS, "longer than"),
    ("not base64", "a.b.c", HS, "not valid"),
]


@pytest.mark.parametrize(("token", "rules", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_token_is_refused_and_nothing_of_it_is_repeated(token: str, rules: JwtRules, words: str) -> None:
    with pytest.raises(Unauthenticated, match=words) as refused:
        check(token, rules, NOW)
    assert not any(part in refused.value.message for part in token.split(".") if len(part) > 8)


def test_clocks_may_differ_by_the_leeway() -> None:
    check(hs(exp=int(NOW) - 29, nbf=int(NOW) + 29), HS, NOW)


def test_a_session_that_is_no_text_is_left_out() -> None:
    assert check(hs(sid=None), HS, NOW).identity.session == ""
    assert check(hs(sid=["a"]), HS, NOW).identity.session == ""
    assert len(check(hs(sid="x" * 1000), HS, NOW).identity.session) == 256


def test_a_token_is_checked_once_and_forgotten_when_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = []
    decode = jwt.decode
    monkeypatch.setattr(jwt, "decode", lambda *given, **named: checks.append(1) or decode(*given, **named))
    table, token = TokenTable(), hs()
    for _ in range(5):
        assert table.checked("d", token, HS, NOW).identity.tenant == "acme"
    assert len(checks) == 1
    with pytest.raises(Unauthenticated, match="expired"):
        table.checked("d", token, HS, NOW + 630)
    assert len(table) == 0


def test_the_table_is_bounded_and_forgets_what_other_keys_signed() -> None:
    table = TokenTable(most=3)
    for number in range(10):
        table.checked(str(number), hs(jti=str(number)), HS, NOW)
    assert len(table) == 3
    other = JwtRules("https://issuer", "streamway", "HS256", "tenant", "sid", 30, {"": b"y" * 32})
    with pytest.raises(Unauthenticated):
        table.checked("9", hs(jti="9"), other, NOW)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_refused_as_unauthenticated(text: str) -> None:
    with pytest.raises(Unauthenticated):
        check(text, HS, NOW)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from(["typ", "kid", "crit", "b64", "alg"]), _json, max_size=3),
    st.dictionaries(
        st.sampled_from(["iss", "aud", "exp", "nbf", "iat", "sub", "jti", "tenant", "sid"]), _json, max_size=4
    ),
)
def test_any_signed_claims_are_believed_or_refused_and_nothing_else(
    header: dict[str, Any], more: dict[str, Any]
) -> None:
    token = by_hand({"alg": "HS256"} | header, claims() | more, SECRET)
    try:
        found = check(token, HS, NOW)
    except Unauthenticated:
        return
    assert found.until > NOW
    assert 1 <= len(found.identity.tenant) <= 64


def jwks(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "jwks.json"
    path.write_text(json.dumps({"keys": rows}))
    return path


def public_row(kid: str | None = "k1", key: Any = PRIVATE) -> dict[str, Any]:
    return json.loads(RSAAlgorithm.to_jwk(key.public_key())) | ({"kid": kid} if kid is not None else {})


def tenants(folder: Path, jwt_rows: str, more: str = "") -> SharedSettings:
    path = folder / "tenants.yaml"
    path.write_text(
        f"tenants: {{acme: {{tier: gold}}}}\njwt: {{issuer: https://issuer, audience: streamway, {jwt_rows}}}\n{more}"
    )
    return SharedSettings(tenants_file=path)


def test_keys_come_from_files_beside_the_tenants_and_a_new_one_counts(tmp_path: Path) -> None:
    jwks(tmp_path, public_row(), {"kty": "EC", "crv": "P-256"})
    watch = TenancyWatch(tenants(tmp_path, "jwks_file: jwks.json, session_claim: sid"))
    known = Credentials(watch, At())
    assert known.required
    assert not known.lets_anybody_in
    assert known.identify(rs()) == Identity("acme", session="s-1")
    with pytest.raises(PermissionDenied, match="'bolt' is not configured"):
        known.identify(rs(tenant="bolt"))
    with pytest.raises(Unauthenticated):
        known.identify(hs())


async def test_a_key_that_was_taken_away_signs_nothing_any_more(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    watch = TenancyWatch(tenants(tmp_path, "secret_file: secret"))
    known, token = Credentials(watch, At()), hs()
    assert known.identify(token).tenant == "acme"
    (tmp_path / "secret").write_bytes(b"z" * 40)
    assert await watch.look()
    with pytest.raises(Unauthenticated):
        known.identify(token)
    (tmp_path / "secret").write_bytes(b"short")
    assert not await watch.look(), "the last good one is kept"
    assert SECRET.decode() not in repr(watch.tenancy)


WRONG = [
    ("", "needs either secret_file, for HS256, or jwks_file"),
    ("secret_file: s, jwks_file: j", "needs either"),
    ("secret_file: none", r"jwt\.secret_file: cannot read"),
    ("secret_file: short", r"jwt\.secret_file: the secret in .* at least 32 bytes"),
    ("secret_file: short, leeway_s: -1", r"jwt\.leeway_s: must be"),
    ("secret_file: short, algoritm: none", r"jwt\.algoritm: unknown key"),
    ("jwks_file: short", r"jwt\.jwks_file: .* is not JSON"),
    ("jwks_file: private.json", "is a private key"),
    ("jwks_file: small.json", "fewer than 2048 bits"),
    ("jwks_file: twice.json", "no 'kid' of its own"),
    ("jwks_file: empty.json", "needs a list 'keys'"),
    ("jwks_file: odd.json", "is no RSA key"),
    ("jwks_file: other.json", "has no RSA key"),
]


@pytest.mark.parametrize(("rows", "words"), WRONG, ids=[row[0] or "neither" for row in WRONG])
def test_a_wrong_key_file_stops_the_start(tmp_path: Path, rows: str, words: str) -> None:
    (tmp_path / "short").write_text("too-short-a-secret")
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    files = {
        "private": [json.loads(RSAAlgorithm.to_jwk(PRIVATE))],
        "small": [public_row(key=small)],
        "twice": [public_row(), public_row()],
        "empty": [],
        "odd": [{"kty": "RSA", "n": "!", "e": 1}],
        "other": [{"kty": "EC"}, 1],
    }
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"keys": content}))
    with pytest.raises(StartError, match=words) as refused:
        load_tenancy(tenants(tmp_path, rows))
    assert "too-short-a-secret" not in str(refused.value)


@given(
    st.binary(max_size=80)
    | _json.map(lambda value: json.dumps(value).encode())
    | st.lists(
        st.fixed_dictionaries(
            {"kty": st.just("RSA")}, optional={"n": _json, "e": _json, "kid": _json, "key_ops": _json}
        ),
        max_size=2,
    ).map(lambda rows: json.dumps({"keys": rows}).encode())
)
def test_any_jwks_is_read_or_refused_with_one_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("jwks")
    (folder / "jwks.json").write_bytes(content)
    with pytest.raises(StartError) as refused:
        load_tenancy(tenants(folder, "jwks_file: jwks.json"))
    assert "\n" not in str(refused.value)
