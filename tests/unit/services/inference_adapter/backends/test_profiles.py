"""The table of engines."""

from __future__ import annotations

import pytest

from services.inference_adapter.backends.openai_http.profiles import (
    LLAMACPP,
    OLLAMA,
    OPENAI,
    PROFILES,
    SGLANG,
    SIMULATED,
    TGI,
    VLLM,
    Profile,
    recognise,
)


@pytest.mark.parametrize(
    ("owned_by", "metrics", "profile"),
    [
        ("vllm", (), VLLM),
        ("llamacpp", ("llamacpp:requests_processing",), LLAMACPP),
        ("sglang", (), SGLANG),
        ("library", (), OLLAMA),
        ("streamway", (), SIMULATED),
        ("org/model", ("tgi_batch_current_size", "tgi_queue_size"), TGI),
        ("somebody", ("vllm:num_requests_running",), VLLM),
        ("somebody", ("process_cpu_seconds_total",), OPENAI),
        ("", (), OPENAI),
    ],
)
def test_an_engine_is_recognised_by_its_models_or_its_metrics(
    owned_by: str, metrics: tuple[str, ...], profile: Profile
) -> None:
    assert recognise(owned_by, frozenset(metrics)) is profile


def test_no_row_says_two_things_of_one_ability_or_has_anothers_name() -> None:
    assert len({profile.name for profile in PROFILES}) == len(PROFILES)
    names = [name for profile in PROFILES for name in profile.owned_by]
    assert len(names) == len(set(names))
    for profile in PROFILES:
        assert not profile.can & profile.cannot
