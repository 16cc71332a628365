"""Settings of the adapter that follow from one another."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.inference_adapter.settings import AdapterSettings


def test_an_engine_has_eight_seconds_to_its_first_token_and_one_on_the_cpu_a_minute_unless_told() -> None:
    for settings in (
        AdapterSettings(backend="simulated"),
        AdapterSettings(backend="openai_http", engine_url="http://127.0.0.1:1"),
        AdapterSettings(backend="llamacpp", engine_url="http://127.0.0.1:1"),
    ):
        assert settings.silence_limits().first_token_of("m", bulk=False) == 8.0
        assert settings.silence_limits().first_token_of("m", bulk=True) == 0.0
    started_here = AdapterSettings(backend="llamacpp", model_path="m.gguf")
    assert started_here.silence_limits().first_token_of("m", bulk=False) == 60.0
    told = AdapterSettings(backend="llamacpp", model_path="m.gguf", first_token_timeout_s=8.0)
    assert told.silence_limits().first_token_of("m", bulk=False) == 8.0


def test_a_model_may_have_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMWAY_ADAPTER_FIRST_TOKEN_TIMEOUT_MODELS", '{"large": 30}')
    limits = AdapterSettings(backend="simulated").silence_limits()
    assert (limits.first_token_of("large", bulk=False), limits.first_token_of("m", bulk=False)) == (30.0, 8.0)
    with pytest.raises(ValidationError, match="'large' must have 0 … 3600 seconds"):
        AdapterSettings(first_token_timeout_models={"large": -1})
