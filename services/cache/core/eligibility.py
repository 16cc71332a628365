"""What may be answered from the cache, and which answers may be kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from streamway.v1 import common_pb2

Refusal = Literal["", "policy_off", "sampling", "choices", "tools", "no_messages"]
StoreRefusal = Literal["", "not_eligible", "not_finished", "too_large", "tool_calls", "over_quota"]

_TERMINAL = ("finished", "error")
_ASKED_FOR = (common_pb2.CACHE_POLICY_EXACT, common_pb2.CACHE_POLICY_FOLDED, common_pb2.CACHE_POLICY_SEMANTIC)
_TOOLS = ("tools", "tool_choice", "functions", "function_call")


def refuses_read(policy: common_pb2.CachePolicy.ValueType, form: dict[str, Any]) -> Refusal:
    """Why a request must not be answered from the cache; empty when it may. `form` is from `canonical_form`.

    An answer is repeatable by itself at temperature 0 or with a seed; a caller that names one of the others takes any.
    """
    if policy == common_pb2.CACHE_POLICY_OFF:
        return "policy_off"
    if not form.get("messages"):
        return "no_messages"
    if "n" in form:  # 1 is the default and not in the form
        return "choices"
    if any(form.get(name) not in (None, "none") for name in _TOOLS):
        return "tools"
    if policy in _ASKED_FOR:
        return ""
    temperature = form.get("temperature")
    repeatable = (temperature == 0 and not isinstance(temperature, bool)) or "seed" in form
    return "" if repeatable else "sampling"


def refuses_store(events: Sequence[common_pb2.Event], size_bytes: int, limit_bytes: int) -> StoreRefusal:
    """Why an answer must not be kept; empty when it may. `size_bytes` is what it would take.

    Kept is only what is whole (positions without a gap up to `finished`), ended by itself, and plain text.
    """
    if not events or events[-1].WhichOneof("event") != "finished" or not _gapless(events):
        return "not_finished"
    if size_bytes > limit_bytes:
        return "too_large"
    reasons = {events[-1].finished.finish_reason}
    tokens = [event.token for event in events if event.WhichOneof("event") == "token"]
    for token in tokens:
        if token.HasField("choice_finished"):
            reasons.add(token.choice_finished.finish_reason)
        if b'"tool_calls"' in token.raw_delta or b'"function_call"' in token.raw_delta:
            return "tool_calls"
    if "tool_calls" in reasons or "function_call" in reasons:
        return "tool_calls"
    if reasons != {"stop"} or any(event.WhichOneof("event") in _TERMINAL for event in events[:-1]):
        return "not_finished"  # cut by a limit or a filter: not the whole answer
    return "not_eligible" if not tokens or any(token.choice for token in tokens) else ""


def _gapless(events: Sequence[common_pb2.Event]) -> bool:
    """The ranges of positions tile from the beginning: `accepted` (1) may be missing, nothing else."""
    expected = 0
    for event in events:
        if event.position == 0:  # a heartbeat
            continue
        first = event.first_position or event.position
        if expected == 0:
            if first > 2:
                return False
        elif first != expected:
            return False
        expected = event.position + 1
    return expected > 0
