"""What the worker's spans say, in the names of OpenTelemetry's conventions for generative AI where they have one."""

from __future__ import annotations

from services.inference_adapter.core.prompt_type import prompt_type
from services.inference_adapter.interfaces import EngineInfo
from streamway.telemetry.facts import Facts
from streamway.v1 import common_pb2


def name_of_task(request: common_pb2.GenerationRequest) -> str:
    """Of the span from the lane to the end."""
    return f"process {request.model}"


def name_of_call(request: common_pb2.GenerationRequest) -> str:
    """Of the span of an engine call."""
    return f"chat {request.model}"


def of_task(request: common_pb2.GenerationRequest, attempt: int) -> Facts:
    """When the worker has it."""
    return {
        "gen_ai.request.model": request.model,
        "gen_ai.conversation.id": request.session,
        "streamway.attempt": attempt,
    }


def of_call(request: common_pb2.GenerationRequest, info: EngineInfo, *, continues: bool) -> Facts:
    """When the engine is asked. `continues`: it goes on with a text that another call has begun."""
    host, _, port = info.address.rpartition(":")
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": info.capabilities.profile or info.kind,
        "gen_ai.request.model": request.model,
        "gen_ai.request.stream": True,
        "streamway.prompt_type": prompt_type(request),
        "streamway.continues": continues,
        **({"server.address": host, "server.port": int(port)} if port.isdigit() else {"server.address": info.address}),
    }


def of_end(usage: common_pb2.Usage | None, finish_reason: str, first_s: float | None = None) -> Facts:
    """When the engine has said all. `first_s`: from the call to its first token."""
    found: dict[str, str | int | float | tuple[str, ...]] = {"gen_ai.response.finish_reasons": (finish_reason,)}
    if first_s is not None:
        found["gen_ai.response.time_to_first_chunk"] = first_s
    if usage is not None:
        found |= {
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_prompt_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        }
        if usage.HasField("cost"):
            found["streamway.cost"] = usage.cost
    return found
