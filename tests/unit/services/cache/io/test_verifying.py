import asyncio

import pytest

from services.cache.core.verifier import UNAVAILABLE, UNTRAINED, FeatureVerifier, Opinion, Pair
from services.cache.core.vetoes.text import Text
from services.cache.io.verifying import ask

PAIR = Pair(Text("prune a rose"), Text("prune a climbing rose"), 0.96, ())


class Says:
    def __init__(self, probability: float | None) -> None:
        self._probability = probability

    async def probability(self, pair: Pair) -> float | None:
        return self._probability


class Hangs:
    async def probability(self, pair: Pair) -> float | None:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class Breaks:
    async def probability(self, pair: Pair) -> float | None:
        raise OSError("the model is gone")


@pytest.mark.parametrize(
    ("verifier", "timeout_s", "opinion"),
    [
        (Says(0.0), 30, Opinion(0.0, "verified")),
        (Says(0.97), 30, Opinion(0.97, "verified")),
        (Says(None), 30, UNTRAINED),
        (FeatureVerifier(), 30, UNTRAINED),
        (Hangs(), 0.01, UNAVAILABLE),
        (Hangs(), 0, UNAVAILABLE),
        (Breaks(), 30, UNAVAILABLE),
    ],
)
async def test_h6_a_verifier_that_fails_or_hangs_is_unavailable(verifier, timeout_s, opinion):
    assert await ask(verifier, PAIR, timeout_s) == opinion


async def test_who_is_cancelled_while_asking_is_cancelled():
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ask(Hangs(), PAIR, 30))
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
