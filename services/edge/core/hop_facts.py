"""What the edge's span of a generation says, in the names of OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from typing import Final

from streamway.telemetry.facts import Facts
from streamway.v1 import common_pb2

# A client may name any model; a span's name is no place for a long one.
_LONGEST_MODEL: Final = 64


def name_of(request: common_pb2.GenerationRequest) -> str:
    """The span's name."""
    return f"chat {request.model[:_LONGEST_MODEL]}"


def of_request(request: common_pb2.GenerationRequest, surface: str) -> Facts:
    """When it is opened."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": request.model[:_LONGEST_MODEL],
        "gen_ai.conversation.id": request.session,
        "streamway.surface": surface,
    }


def of_accepted(accepted: common_pb2.Accepted) -> Facts:
    """When the mesh has taken it."""
    found: dict[str, str] = {
        "gen_ai.response.model": accepted.model,
        "streamway.route": accepted.route,
        "streamway.cache": accepted.cache,
    }
    optional = {
        "streamway.worker": accepted.worker,
        "streamway.reason": accepted.reason,
        "streamway.attached_to": accepted.attached_to,
        "streamway.follows": accepted.follows,
    }
    return found | {name: value for name, value in optional.items() if value}


def of_finished(finished: common_pb2.Finished) -> Facts:
    """When it has ended well."""
    usage = finished.usage
    return {
        "gen_ai.response.finish_reasons": (finished.finish_reason,),
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_prompt_tokens,
    }
