"""Which key a conversation gets."""

from __future__ import annotations

import hashlib

from services.edge.core.placement import choose_router
from streamway.affinity import session_key


def test_the_order_is_explicit_openai_address_connection() -> None:
    given = ("me", "user-1", "10.0.0.1", "00112233aabbccdd")
    keys = [session_key.choose(*("",) * number, *given[number:]) for number in range(4)]
    assert len(set(keys)) == 4
    assert keys[3] == given[3]
    assert all(len(key) == 16 for key in keys)
    assert session_key.choose("", "", "", "") == ""


def test_a_key_that_is_sent_back_stays_the_same() -> None:
    key = session_key.of_websocket("127.0.0.1", "dGhlIHNhbXBsZSBub25jZQ==")
    assert key == hashlib.sha256(b"127.0.0.1dGhlIHNhbXBsZSBub25jZQ==").digest()[:8].hex()
    assert session_key.of_id(key) == key
    assert session_key.of_id("other") != "other"


def test_a_conversation_keeps_its_key_from_turn_to_turn() -> None:
    first = [("system", "be kind"), ("user", "hi")]
    second = [*first, ("assistant", "hello"), ("user", "more")]
    assert session_key.of_prompt("t", "m", first) == session_key.of_prompt("t", "m", second)
    assert session_key.of_prompt("t", "m", first) != session_key.of_prompt("u", "m", first)
    assert session_key.of_prompt("t", "m", first) != session_key.of_prompt("t", "n", first)
    assert session_key.of_prompt("ta", "m", first) != session_key.of_prompt("t", "am", first)


def test_only_the_first_kilobyte_of_the_prompt_counts() -> None:
    long = "é" * 5000
    assert session_key.of_prompt("t", "m", [("user", long)]) == session_key.of_prompt("t", "m", [("user", long + "x")])
    assert session_key.of_prompt("t", "m", [("user", "é" * 400)]) != session_key.of_prompt(
        "t", "m", [("user", "é" * 401)]
    )


def test_a_router_that_goes_moves_only_its_own_sessions() -> None:
    routers = ["a:1", "b:1", "c:1"]
    before = {str(n): choose_router(str(n), routers) for n in range(300)}
    after = {session: choose_router(session, routers[:2]) for session in before}
    assert all(after[session] == home for session, home in before.items() if home != "c:1")
    assert {before[s] for s in before} == set(routers)
    assert choose_router("x", []) == ""


def test_a_claim_of_the_token_comes_behind_what_the_client_names_and_before_everything_else() -> None:
    key = session_key.choose("", "user", "1.2.3.4", "c", claim="s-1")
    assert key == session_key.of_claim("s-1") != session_key.of_id("s-1")
    assert session_key.choose("named", "", "", "", claim="s-1") == session_key.of_id("named")
