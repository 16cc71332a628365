"""The session key: what routers hash to send a conversation home (docs/design.md §6).

The first that exists: the client's own session id; the claim of its token that is configured for this; OpenAI's
`prompt_cache_key` or `user`; the client's address, where configured; the WebSocket's address and key; the beginning of the
prompt. Never the bearer token. Edges and routers make keys here and nowhere else: two keys of one conversation would be two
homes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

import xxhash

_KEY: Final = re.compile(r"[0-9a-f]{16}")
PROMPT_BYTES: Final = 1024


def of_id(session: str) -> str:
    """The key of a client's session id. A key, as `hello` gives it, is its own key: sent back, it goes home."""
    if _KEY.fullmatch(session):
        return session
    return xxhash.xxh3_64_hexdigest(session.encode(errors="surrogatepass"))


def of_websocket(address: str, websocket_key: str) -> str:
    """The key of a connection: the first 8 bytes of SHA-256 over client address and `Sec-WebSocket-Key`."""
    return hashlib.sha256(f"{address}{websocket_key}".encode()).digest()[:8].hex()


def of_prompt(tenant: str, model: str, messages: Iterable[tuple[str, str]]) -> str:
    """The key of a conversation that names none: tenant, model and the prompt's first 1,024 bytes.

    `messages` are role and content. It stops after the first user message: what follows grows with each turn, and the
    second turn must find the worker of the first.
    """
    prompt = bytearray()
    for role, content in messages:
        room = PROMPT_BYTES - len(prompt)
        # A code point has at most four bytes, so a slice of the text is enough for a slice of the bytes.
        prompt += f"{role}\0{content[:room]}\0".encode(errors="surrogatepass")[:room]
        if role == "user" or len(prompt) >= PROMPT_BYTES:
            break
    parts = (tenant.encode(), model.encode(errors="surrogatepass"), bytes(prompt))
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.hexdigest()


def of_claim(session: str) -> str:
    """The key of what a caller's token says of its conversation."""
    return of_id(f"claim:{session}")


def choose(explicit: str, openai: str, address: str, connection: str, *, claim: str = "") -> str:
    """The key by what the client said or is, each empty when absent; empty when only the prompt is left.

    `claim` is what its token says, where a claim is configured for that.
    """
    if explicit:
        return of_id(explicit)
    if claim:
        return of_claim(claim)
    if openai:
        return of_id(f"openai:{openai}")
    if address:
        return of_id(f"address:{address}")
    return connection
