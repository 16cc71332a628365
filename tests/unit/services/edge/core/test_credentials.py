"""Keys, subprotocols and origins."""

from __future__ import annotations

import pytest

from services.edge.core import credentials
from streamway.errors import InvalidArgument, Unauthenticated

SPOKEN = ("streamway.v1.json", "streamway.v1.proto")


def test_bearer_keys_are_found_whatever_the_case() -> None:
    assert credentials.bearer("bearer  abc ") == "abc"
    assert credentials.bearer("") == ""
    for header in ("Basic abc", "Bearer", "abc"):
        with pytest.raises(Unauthenticated):
            credentials.bearer(header)


def test_a_browsers_key_is_base64url_without_padding() -> None:
    assert credentials.key_of(["streamway.v1.json", "streamway.auth.c2stYWI"]) == "sk-ab"
    assert credentials.key_of(["streamway.v1.json"]) == ""
    for broken in ("streamway.auth.!!", "streamway.auth._w", "streamway.auth.a"):
        with pytest.raises(Unauthenticated):
            credentials.key_of([broken])


def test_another_subprotocol_is_refused_and_the_key_is_not_shown() -> None:
    credentials.check_subprotocol([], SPOKEN)
    credentials.check_subprotocol(["x", "streamway.v1.json"], SPOKEN)
    with pytest.raises(InvalidArgument) as caught:
        credentials.check_subprotocol(["graphql", "streamway.auth.c2VjcmV0"], SPOKEN)
    assert "graphql" in caught.value.message
    assert "c2VjcmV0" not in caught.value.message


@pytest.mark.parametrize(
    ("origin", "host", "open_to_all", "allowed"),
    [
        ("", "localhost:8080", True, True),
        ("http://localhost:8080", "localhost:8080", True, True),
        ("http://[::1]:8080", "[::1]:8080", True, True),
        ("http://localhost:3000", "localhost:8080", True, False),
        ("https://evil.example", "localhost:8080", True, False),
        ("null", "localhost:8080", True, False),
        ("http://evil.example:8080", "evil.example:8080", True, False),
        ("", "evil.example:8080", True, False),
        ("http://mesh.example", "mesh.example", False, True),
        ("https://chat.example", "localhost:8080", True, True),
        ("https://chat.example", "chat.example", True, True),
        ("http://[bad", "localhost", True, False),
    ],
)
def test_whose_pages_may_use_the_edge(origin: str, host: str, open_to_all: bool, allowed: bool) -> None:
    known = frozenset({"https://chat.example"})
    assert credentials.origin_allowed(origin, host, known, open_to_all=open_to_all) is allowed
