"""Load out of the metrics pages of the engines we know."""

from __future__ import annotations

from services.inference_adapter.backends.openai_http.metrics import kv_blocks, names, read
from services.inference_adapter.interfaces import EngineLoad


def test_vllm_with_labels_and_two_engines() -> None:
    page = b"""# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m}x"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e9
"""
    assert read(page) == EngineLoad(5, 7, 0.5, 4)


def test_llamacpp_tells_no_kv_use() -> None:
    assert read(b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n") == EngineLoad(2, 1, None)


def test_a_page_of_somebody_else_says_nothing() -> None:
    assert read(b'process_cpu_seconds_total 12\npython_info{x="y"} 1\n\xff\xfe garbage') is None
    assert read(b"vllm:num_requests_running nonsense") is None


def test_engines_beside_vllm_tell_their_load_in_other_words() -> None:
    assert read(b'sglang:num_running_reqs{a="b"} 3\nsglang:num_queue_reqs 1\nsglang:token_usage 0.5\n') == EngineLoad(
        3, 1, 0.5
    )
    assert read(b"tgi_batch_current_size 4\ntgi_queue_size 2\n") == EngineLoad(4, 2, None)


def test_the_size_of_the_kv_cache_stands_in_labels() -> None:
    page = b'vllm:cache_config_info{block_size="128",cache_dtype="auto",engine="0",num_gpu_blocks="4096"} 1.0\n'
    assert kv_blocks(page) == (4096, 128)
    assert kv_blocks(page + page.replace(b'"0"', b'"1"')) == (8192, 128), "two engines"
    assert kv_blocks(b"llamacpp:requests_processing 2\n") == (0, 0)
    assert names(page) == {"vllm:cache_config_info"}
