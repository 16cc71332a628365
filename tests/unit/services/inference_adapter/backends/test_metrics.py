"""Load out of the metrics pages of the engines we know."""

from __future__ import annotations

from services.inference_adapter.backends.openai_http.metrics import read
from services.inference_adapter.interfaces import EngineLoad


def test_vllm_with_labels_and_two_engines() -> None:
    page = b"""# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m}x"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
"""
    assert read(page) == EngineLoad(5, 7, 0.5)


def test_llamacpp_tells_no_kv_use() -> None:
    assert read(b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n") == EngineLoad(2, 1, None)


def test_a_page_of_somebody_else_says_nothing() -> None:
    assert read(b'process_cpu_seconds_total 12\npython_info{x="y"} 1\n\xff\xfe garbage') is None
    assert read(b"vllm:num_requests_running nonsense") is None
