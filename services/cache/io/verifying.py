"""Asking a verifier within a time."""

from __future__ import annotations

import asyncio

from services.cache.core.verifier import UNAVAILABLE, UNTRAINED, Opinion, Pair, Verifier


async def ask(verifier: Verifier, pair: Pair, timeout_s: float) -> Opinion:
    """The verifier's opinion. One that fails or takes too long is unavailable, which is a miss and never a hit."""
    try:
        async with asyncio.timeout(timeout_s):
            probability = await verifier.probability(pair)
    except Exception:  # noqa: BLE001  # whatever a verifier raises, the answer is not served
        return UNAVAILABLE
    return UNTRAINED if probability is None else Opinion(probability, "verified")
