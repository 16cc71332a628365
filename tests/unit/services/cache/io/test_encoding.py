"""Texts into vectors: batches, bounds, and encoders that cannot be used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from services.cache.interfaces import EncoderFailed, Vector
from services.cache.io.encoding import Encoding
from streamway.runtime.tasks import TaskScope


class Letters:
    """Counts the letters of a text, when it is let."""

    name = "letters"

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.instead: Callable[[str], Vector | None] | None = None

    async def encode(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        self.batches.append(list(texts))
        await self.go.wait()
        return [self.instead(text) if self.instead is not None else counts(text) for text in texts]

    async def close(self) -> None:
        pass


def counts(text: str) -> Vector:
    return np.array([text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz天面"], np.float32)


def failing(text: str) -> Vector:
    raise EncoderFailed("down")


async def test_what_comes_while_the_encoder_works_is_its_next_batch() -> None:
    encoder = Letters()
    async with TaskScope("test") as scope:
        encoding = Encoding(encoder, scope, most_waiting=8)
        encoder.go.clear()
        tasks = [scope.spawn(encoding.encode("a"), "a")]
        while not encoder.batches:
            await asyncio.sleep(0)
        tasks += [scope.spawn(encoding.encode(text), text) for text in ("b", "ab")]
        await asyncio.sleep(0)
        encoder.go.set()
        a, b, ab = await asyncio.gather(*tasks)
    assert encoder.batches == [["a"], ["b", "ab"]]
    assert a is not None
    assert b is not None
    assert ab is not None
    assert [float(vector @ vector) for vector in (a, b, ab)] == pytest.approx([1, 1, 1])
    assert float(a @ b) == 0
    assert float(a @ ab) == pytest.approx(0.5**0.5)


async def test_a_flood_of_texts_is_not_queued() -> None:
    encoder = Letters()
    async with TaskScope("test") as scope:
        encoding = Encoding(encoder, scope, most_waiting=2)
        encoder.go.clear()
        first = scope.spawn(encoding.encode("a"), "first")
        while not encoder.batches:
            await asyncio.sleep(0)
        waiting = [scope.spawn(encoding.encode("b"), "b") for _ in range(2)]
        await asyncio.sleep(0)
        assert await encoding.encode("c") is None
        encoder.go.set()
        assert await first is not None
        assert all(vector is not None for vector in await asyncio.gather(*waiting))
    assert [text for batch in encoder.batches for text in batch] == ["a", "b", "b"]


async def test_who_gave_up_is_not_encoded() -> None:
    encoder = Letters()
    async with TaskScope("test") as scope:
        encoding = Encoding(encoder, scope, most_waiting=8)
        encoder.go.clear()
        first = scope.spawn(encoding.encode("a"), "first")
        while not encoder.batches:
            await asyncio.sleep(0)
        late = scope.spawn(encoding.encode("b"), "late")
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.wait({late})
        encoder.go.set()
        await first
        await encoding.encode("c")
    assert encoder.batches == [["a"], ["c"]]


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros(28, np.float32),
        np.full(28, np.nan, np.float32),
        np.full(28, np.inf, np.float32),
        np.ones(3, np.float32),
        np.ones((28, 1), np.float32),
        None,
    ],
    ids=["zero", "nan", "infinite", "another dimension", "a matrix", "none"],
)
async def test_h6_a_vector_that_is_no_direction_is_none(bad: Vector | None) -> None:
    encoder = Letters()
    async with TaskScope("test") as scope:
        encoding = Encoding(encoder, scope, most_waiting=8)
        assert await encoding.encode("a") is not None
        encoder.instead = lambda text: bad
        assert await encoding.encode("a") is None
        encoder.instead = None
        assert await encoding.encode("a") is not None


async def test_h6_an_encoder_with_one_vector_for_everything_is_not_asked() -> None:
    encoder = Letters()
    async with TaskScope("test") as scope:
        encoding = Encoding(encoder, scope, most_waiting=8)
        encoder.instead = lambda text: np.ones(28, np.float32)
        await encoding.check()
        assert encoding.refused == "it gives one vector for different texts"
        asked = len(encoder.batches)
        assert await encoding.encode("a") is None
        assert len(encoder.batches) == asked
        encoder.instead = None
        await encoding.check()
        assert await encoding.encode("a") is not None


@pytest.mark.parametrize(
    ("instead", "why"),
    [
        (failing, "down"),
        (lambda text: np.full(28, np.nan, np.float32), "it gave no vector, or one that is no direction"),
    ],
)
async def test_an_encoder_that_fails_its_canary_says_why(instead: Callable[[str], Vector], why: str) -> None:
    encoder = Letters()
    encoder.instead = instead
    async with TaskScope("test") as scope:
        encoding = Encoding(encoder, scope, most_waiting=8)
        await encoding.check()
        assert encoding.refused == why


async def test_a_failed_batch_is_none_for_each_and_the_next_one_works() -> None:
    encoder = Letters()
    async with TaskScope("test") as scope:
        encoding = Encoding(encoder, scope, most_waiting=8)
        encoder.instead = failing
        assert await encoding.encode("a") is None
        encoder.instead = None
        assert await encoding.encode("a") is not None
