"""Each wrong field is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.router.core.validate import check
from streamway.errors import DeadlineExceeded, InvalidArgument, Malformed, StreamwayError, TooLarge
from streamway.v1 import common_pb2
from tests.support.router_mesh import ask

NOW = 1_000_000.0


def _check(request: common_pb2.GenerationRequest, size: int = 5) -> None:
    check(request, NOW, size, 1000, "STREAMWAY_MAX_MESSAGE_BYTES")


def test_a_usual_request_passes() -> None:
    _check(ask())
    full = ask(priority=-128, deadline_unix_ms=int(NOW) + 1, metadata={"a": "b"}, session="x" * 256)
    full.sampling.temperature, full.sampling.top_k, full.sampling.n = 2, -1, 16
    full.limits.max_tokens = 1
    full.limits.stop.append("\n")
    _check(full)


def test_a_body_stands_in_for_messages() -> None:
    request = ask(openai_body=b' {"messages": []}')
    del request.messages[:]
    _check(request)


Change = Callable[[common_pb2.GenerationRequest], object]
WRONG: list[tuple[str, Change]] = [
    ("generation", lambda r: setattr(r, "generation", "")),
    ("generation", lambda r: setattr(r, "generation", "A" * 36)),
    ("model", lambda r: setattr(r, "model", "")),
    ("model", lambda r: setattr(r, "model", "m" * 257)),
    ("session", lambda r: setattr(r, "session", "é" * 129)),
    ("messages", lambda r: r.ClearField("messages")),
    ("messages[1].role", lambda r: r.messages.add(role="robot", content="x")),
    ("sampling.temperature", lambda r: setattr(r.sampling, "temperature", 2.5)),
    ("sampling.temperature", lambda r: setattr(r.sampling, "temperature", float("nan"))),
    ("sampling.top_p", lambda r: setattr(r.sampling, "top_p", -0.1)),
    ("sampling.min_p", lambda r: setattr(r.sampling, "min_p", 1.1)),
    ("sampling.presence_penalty", lambda r: setattr(r.sampling, "presence_penalty", 2.1)),
    ("sampling.frequency_penalty", lambda r: setattr(r.sampling, "frequency_penalty", float("inf"))),
    ("sampling.top_k", lambda r: setattr(r.sampling, "top_k", -2)),
    ("sampling.n", lambda r: setattr(r.sampling, "n", 0)),
    ("sampling.n", lambda r: setattr(r.sampling, "n", 17)),
    ("limits.max_tokens", lambda r: setattr(r.limits, "max_tokens", 0)),
    ("limits.max_tokens", lambda r: setattr(r.limits, "max_tokens", 4_294_967_295)),  # −1 of a careless client
    ("limits.stop", lambda r: r.limits.stop.extend(["x"] * 17)),
    ("limits.stop[0]", lambda r: r.limits.stop.append("")),
    ("limits.stop[0]", lambda r: r.limits.stop.append("x" * 257)),
    ("priority", lambda r: setattr(r, "priority", 128)),
    ("priority", lambda r: setattr(r, "priority", -129)),
    ("metadata", lambda r: r.metadata.update({str(number): "" for number in range(17)})),
    ("metadata", lambda r: r.metadata.update({"": "x"})),
    ("metadata[a]", lambda r: r.metadata.update({"a": "x" * 257})),
    ("cache", lambda r: setattr(r, "cache", 99)),
    ("on_disconnect", lambda r: setattr(r, "on_disconnect", 99)),
    ("deadline_unix_ms", lambda r: setattr(r, "deadline_unix_ms", -1)),
]


@pytest.mark.parametrize(("field", "change"), WRONG, ids=[f"{field}-{index}" for index, (field, _) in enumerate(WRONG)])
def test_a_wrong_field_is_named(field: str, change: Change) -> None:
    request = ask()
    change(request)
    with pytest.raises(InvalidArgument) as refused:
        _check(request)
    assert refused.value.param == field


@pytest.mark.parametrize(
    ("kind", "change", "size"),
    [
        (TooLarge, lambda r: None, 1001),
        (DeadlineExceeded, lambda r: setattr(r, "deadline_unix_ms", int(NOW) - 1), 5),
        (Malformed, lambda r: setattr(r, "openai_body", b"[1]"), 5),
    ],
)
def test_other_refusals_have_their_own_reason(kind: type[StreamwayError], change: Change, size: int) -> None:
    request = ask()
    change(request)
    with pytest.raises(kind):
        _check(request, size)


def test_a_prompt_over_the_limit_names_limit_and_setting() -> None:
    with pytest.raises(TooLarge, match="1000 bytes; the limit is the setting STREAMWAY_MAX_MESSAGE_BYTES"):
        _check(ask(), 1001)
