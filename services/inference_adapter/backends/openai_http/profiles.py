"""The engines we know, and in what they differ: one row each.

A row says how the engine is recognised, what it is asked with beside OpenAI's fields, where it tells its load, and what it can do
as far as its documentation says. What can be tried is tried when the engine is started (`backends/probing.py`), and counts more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from streamway.models.abilities import Ability


@dataclass(frozen=True, slots=True)
class MetricNames:
    """Gauges of an engine's metrics page. `kv_used`: a share, 0 … 1; "": it has none.

    `kv_blocks` is a sample whose labels `num_gpu_blocks` and `block_size` tell the size of the KV cache, `put_aside` counts the
    sequences that had to wait in the middle since their KV was needed for others; "": there is none.
    """

    running: str
    waiting: str
    kv_used: str = ""
    kv_blocks: str = ""
    put_aside: str = ""


@dataclass(frozen=True, slots=True)
class SleepCalls:
    """What makes an engine give its memory back and take it again: POST `sleep`, POST `wake`, and GET `state`, which says
    `is_sleeping`. `needs`: with what it must be started."""

    sleep: str
    wake: str
    state: str
    needs: str


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of engine.

    `owned_by`: what its list of models says there, which is how it is recognised; else by its metrics. `continue_by`: the
    fields that tell it that the last message is the beginning of its answer. `priority`: the field for a request's priority,
    and by what ours is multiplied for it; `cache_salt`: the field for a salt of its prefix cache. `version`: the document that
    has its version, and under which key; `adapters`: the one that lists its LoRA adapters, where its list of models does not.
    `tried`: what it can do is found out. `rest`: how it is put to sleep, if it can be.
    """

    name: str
    owned_by: frozenset[str] = frozenset()
    metrics: tuple[MetricNames, ...] = ()
    continue_by: Mapping[str, object] = field(default_factory=dict)
    priority: tuple[str, int] | None = None
    cache_salt: str = ""
    version: tuple[str, str] | None = None
    adapters: str = ""
    can: frozenset[Ability] = frozenset()
    cannot: frozenset[Ability] = frozenset()
    tried: bool = True
    rest: SleepCalls | None = None


_ALL: Final = frozenset(Ability)
_OPENAI: Final = frozenset({Ability.TOOLS, Ability.GRAMMAR, Ability.LOGPROBS, Ability.SEVERAL_CHOICES})
_CONTINUE: Final = {"continue_final_message": True, "add_generation_prompt": False}

VLLM: Final = Profile(
    "vllm",
    frozenset({"vllm"}),
    (
        MetricNames(
            "vllm:num_requests_running",
            "vllm:num_requests_waiting",
            "vllm:kv_cache_usage_perc",
            "vllm:cache_config_info",
            "vllm:num_preemptions_total",
        ),
        # Older ones.
        MetricNames("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:gpu_cache_usage_perc"),
    ),
    continue_by=_CONTINUE,
    # Lower goes first.
    priority=("priority", -1),
    cache_salt="cache_salt",
    version=("/version", "version"),
    can=_OPENAI | {Ability.CONTINUES, Ability.CACHE_SALT, Ability.TOKEN_IDS, Ability.KV_USE},
    # Level 1 keeps the weights in the host's memory. Newer ones wait for what others still ask, where they are told so.
    rest=SleepCalls(
        "/sleep?level=1&mode=wait",
        "/wake_up",
        "/is_sleeping",
        "start vLLM with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1, on a platform that has a sleep mode",
    ),
)
LLAMACPP: Final = Profile(
    "llamacpp",
    frozenset({"llamacpp"}),
    (MetricNames("llamacpp:requests_processing", "llamacpp:requests_deferred"),),
    # A last message of the assistant is what it goes on with by itself.
    version=("/props", "build_info"),
    adapters="/lora-adapters",
    can=_OPENAI | {Ability.CONTINUES, Ability.CACHED_TOKENS, Ability.KV_USE},
    cannot=frozenset({Ability.TOKEN_IDS, Ability.PRIORITY, Ability.CACHE_SALT}),
)
SGLANG: Final = Profile(
    "sglang",
    frozenset({"sglang"}),
    (MetricNames("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"),),
    continue_by={"continue_final_message": True},
    version=("/get_server_info", "version"),
    can=_OPENAI | {Ability.CONTINUES, Ability.CACHED_TOKENS, Ability.KV_USE},
    cannot=frozenset({Ability.TOKEN_IDS, Ability.PRIORITY, Ability.CACHE_SALT}),
)
OLLAMA: Final = Profile(
    "ollama",
    frozenset({"library", "ollama"}),
    version=("/api/version", "version"),
    can=frozenset({Ability.TOOLS, Ability.GRAMMAR}),
    cannot=_ALL - {Ability.CONTINUES, Ability.TOOLS, Ability.GRAMMAR, Ability.LOGPROBS},
)
TGI: Final = Profile(
    "tgi",
    metrics=(MetricNames("tgi_batch_current_size", "tgi_queue_size"),),
    continue_by={"continue_final_message": True},
    version=("/info", "version"),
    can=frozenset({Ability.TOOLS, Ability.GRAMMAR, Ability.LOGPROBS}),
    cannot=_ALL - {Ability.CONTINUES, Ability.TOOLS, Ability.GRAMMAR, Ability.LOGPROBS},
)
SIMULATED: Final = Profile(
    "simulated",
    frozenset({"streamway"}),
    (MetricNames("simulated:requests_running", "simulated:requests_waiting", "simulated:kv_used_ratio"),),
    can=_ALL - {Ability.TOKEN_IDS, Ability.PRIORITY, Ability.CACHE_SALT, Ability.GRAMMAR},
    cannot=frozenset({Ability.TOKEN_IDS, Ability.PRIORITY, Ability.CACHE_SALT, Ability.GRAMMAR}),
    # It is ours: what it can do is what is written here.
    tried=False,
)
# Whoever else speaks OpenAI's words: it is asked to go on as most of them understand it, and tried before that is believed.
OPENAI: Final = Profile(
    "openai",
    continue_by=_CONTINUE,
    cannot=frozenset({Ability.TOKEN_IDS, Ability.PRIORITY, Ability.CACHE_SALT, Ability.KV_USE}),
)

PROFILES: Final = (VLLM, LLAMACPP, SGLANG, OLLAMA, TGI, SIMULATED, OPENAI)


def recognise(owned_by: str, metrics: frozenset[str]) -> Profile:
    """The row for an engine that calls itself so and has these metrics; `OPENAI` for one that nobody knows."""
    for profile in PROFILES:
        if owned_by and owned_by in profile.owned_by:
            return profile
    for profile in PROFILES:
        if any(names.running in metrics for names in profile.metrics):
            return profile
    return OPENAI
