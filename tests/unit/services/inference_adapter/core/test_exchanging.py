"""New weights are loaded beside the old ones only where both have room."""

from __future__ import annotations

from services.inference_adapter.core.exchanging import decide
from services.inference_adapter.core.gguf import ModelFile

MIB = 1024 * 1024
MODEL = ModelFile("llama", 94 * MIB, 8192, 23040, 49152, "f")


def test_with_room_for_both_the_old_ones_serve_on() -> None:
    how = decide(4, 4096, MODEL, 16 * 1024 * MIB, gpu=False)
    assert how.beside
    assert how.why == ""


def test_with_less_room_the_old_ones_go_first_and_it_is_told() -> None:
    how = decide(4, 4096, MODEL, 480 * MIB, gpu=False)
    assert not how.beside
    assert how.why.startswith("memory: 2 of 4 slots of 4096 tokens")


def test_the_slots_that_serve_must_all_fit_again() -> None:
    """Not those of the settings: an engine with fewer slots since memory was short is exchanged for one like it."""
    assert decide(2, 4096, MODEL, 480 * MIB, gpu=False).beside


def test_where_nobody_knows_the_room_they_are_loaded_beside() -> None:
    assert decide(4, 4096, MODEL, 0, gpu=False).beside


def test_a_gpu_is_given_back_first() -> None:
    how = decide(1, 256, MODEL, 16 * 1024 * MIB, gpu=True)
    assert how.why == "a GPU has one engine at a time"
