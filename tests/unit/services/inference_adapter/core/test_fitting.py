"""An engine gets the slots that its memory has room for."""

from __future__ import annotations

from services.inference_adapter.core.fitting import MOST_CACHE_MIB, fit
from services.inference_adapter.core.gguf import ModelFile

MIB = 1024 * 1024
# 23,040 bytes a token: 90 MiB for a slot of 4,096 tokens.
MODEL = ModelFile("llama", 94 * MIB, 8192, 23040, 49152, "f")


def test_where_there_is_room_there_are_as_many_as_were_wanted() -> None:
    found = fit(4, 4096, MODEL, 16 * 1024 * MIB)
    assert (found.slots, found.cache_mib, found.why) == (4, MOST_CACHE_MIB, "")


def test_where_there_is_not_there_are_fewer_and_it_says_why() -> None:
    found = fit(4, 4096, MODEL, 480 * MIB)
    assert found.slots == 2
    assert found.why.startswith("memory: 2 of 4 slots of 4096 tokens (90 MiB each) fit")
    assert found.cache_mib <= 32


def test_a_sixteenth_stays_free() -> None:
    exact = (94 + 96 + 24 + 90) * MIB
    assert fit(1, 4096, MODEL, exact * 16 // 15 + MIB).why == ""
    assert fit(1, 4096, MODEL, exact).why != ""


def test_one_is_tried_where_none_fits() -> None:
    found = fit(4, 4096, MODEL, 100 * MIB)
    assert (found.slots, found.cache_mib) == (1, 0)
    assert "0 of 4" in found.why


def test_where_nobody_knows_the_settings_stand() -> None:
    assert fit(3, 4096, MODEL, 0).slots == 3
    assert fit(3, 4096, ModelFile("mamba", MIB, 0, 0, 0, "f"), MIB).slots == 3
