"""The catalogue of errors is complete, and every error survives the way through a status."""

from __future__ import annotations

import inspect

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from streamway import errors
from streamway.errors import TABLE, StreamwayError, from_rpc_error, from_status, reason_name, to_openai_body, to_status
from streamway.v1.common_pb2 import ErrorReason

REASONS = [value for value in ErrorReason.values() if value != ErrorReason.ERROR_REASON_UNSPECIFIED]
CLASSES = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, StreamwayError) and kind is not StreamwayError
]
EXAMPLES: list[StreamwayError] = [
    errors.InvalidArgument("n", "must be 1 … 16"),
    errors.Malformed("the frame", "not JSON"),
    errors.TooLarge("the body", 1024, "STREAMWAY_MAX_MESSAGE_BYTES"),
    errors.ContextLengthExceeded("9000 tokens of 8192"),
    errors.ModelNotFound("nobody", ["b", "a"]),
    errors.GenerationNotFound("x"),
    errors.ContextNotFound("chat-7"),
    errors.ContextBusy("chat-7", "x"),
    errors.DuplicateId("x"),
    errors.PermissionDenied.model("m", ["a"]),
    errors.PermissionDenied.tenant("acme"),
    errors.Unauthenticated("credentials are missing"),
    errors.QueueFull("m", 2.5),
    errors.TooManyGenerations("connection", 5),
    errors.NoWorkers("m"),
    errors.QueueTimeout(300),
    errors.DeadlineExceeded("waiting"),
    errors.Cancelled(),
    errors.EngineRejected("max_tokens is too large", 400, "max_tokens"),
    errors.EngineFailed("adapter-0", "status 500"),
    errors.WorkerLost("adapter-0"),
    errors.SlowConsumer(5, 4),
    errors.GoingAway("edge"),
    errors.EdgeOverloaded(),
    errors.StoreUnavailable(),
    errors.RouterUnavailable(),
    errors.EventsExpired("x"),
    errors.Internal("abc"),
    errors.IdempotencyConflict("x"),
    errors.TakeoverUnsupported("adapter-0", "it has more than one choice"),
    errors.TokenGap("adapter-0", 10),
    errors.FirstTokenTimeout("adapter-0", 8),
    errors.EngineOverloaded("adapter-0", 429, 5.0, "slow down"),
    errors.TooManyAttempts(3),
    errors.QuotaExceeded("acme", "tokens_per_minute", 1000, 2.5, "m", {"limit_tokens": "1000"}),
    errors.RequestTooLargeForQuota("acme", 2000, 900),
    errors.MemoryPressure("router"),
    errors.NotCached("miss"),
    errors.TooMuchFeedback("acme", 60, 2.5),
]


def details(status: status_pb2.Status, kind: type) -> list:
    found = []
    for detail in status.details:
        message = kind()
        if detail.Unpack(message):
            found.append(message)
    return found


def test_every_reason_has_a_row_and_a_class_and_an_example_here() -> None:
    assert set(TABLE) == set(REASONS)
    assert {kind.reason for kind in CLASSES} == set(REASONS)
    assert {error.reason for error in EXAMPLES} == set(REASONS)


@pytest.mark.parametrize("reason", REASONS, ids=reason_name)
def test_a_row_tells_every_surface_something_it_understands(reason: ErrorReason.ValueType) -> None:
    row = TABLE[reason]
    assert row.grpc is not grpc.StatusCode.OK
    assert getattr(code_pb2, row.grpc.name) == row.grpc.value[0]
    assert 400 <= row.http <= 599
    assert row.close in {1000, 1001, 1007, 1008, 1009, 1011, 1013} or 4000 <= row.close <= 4999
    assert row.meaning
    assert reason_name(reason) == reason_name(reason).lower()


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.name)
def test_an_error_survives_the_way_through_a_status(error: StreamwayError) -> None:
    back = from_status(status_pb2.Status.FromString(to_status(error).SerializeToString()))
    assert type(back) is type(error)
    assert back.message == error.message
    assert back.metadata == error.metadata
    assert back.retry_after_s == (error.retry_after_s if error.row.retryable else None)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.name)
def test_a_status_has_exactly_one_error_info_and_only_the_details_that_fit(error: StreamwayError) -> None:
    status = to_status(error)
    (info,) = details(status, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == (error.name, "streamway")
    assert len(details(status, error_details_pb2.RetryInfo)) == (error.retry_after_s is not None)
    assert len(details(status, error_details_pb2.BadRequest)) == (error.param is not None)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.name)
def test_openai_clients_get_the_body_they_parse(error: StreamwayError) -> None:
    body = to_openai_body(error, "r1")
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["code"] == error.name
    assert body["retryable"] is error.row.retryable


@given(st.text(max_size=5000), st.integers(min_value=64, max_value=2000))
def test_a_cut_status_fits_and_is_whole_text(text: str, most: int) -> None:
    status = to_status(errors.InvalidArgument("x" * 3000, text), most_bytes=most)
    assert len(status.message.encode()) <= most
    (info,) = details(status, error_details_pb2.ErrorInfo)
    assert all(len(value.encode()) <= most // 4 for value in info.metadata.values())


def test_a_store_that_is_away_is_not_said_to_have_prevented_a_running_stream() -> None:
    assert "ask again" in errors.StoreUnavailable().message
    waited = errors.StoreUnavailable(waited=True).message
    assert "resume" in waited
    assert "nothing was started" not in waited


def test_a_lone_surrogate_is_refused_like_any_other_bad_value() -> None:
    error = errors.InvalidArgument("\ud800", "unknown field")
    assert from_status(to_status(error)).name == "invalid_argument"


def test_metadata_from_another_process_may_have_any_name() -> None:
    error = StreamwayError.restore(ErrorReason.ERROR_REASON_QUEUE_FULL, "full", {"message": "m", "self": "s"})
    assert error.metadata == {"message": "m", "self": "s"}


def test_a_reason_from_the_future_becomes_internal_and_keeps_the_text_out_of_the_message() -> None:
    status = status_pb2.Status(code=13, message="secret detail")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="not_yet_known", domain="streamway"))
    error = from_status(status)
    assert isinstance(error, errors.Internal)
    assert "secret" not in error.message
    assert error.metadata["remote"] == "secret detail"


def rpc_error(code: grpc.StatusCode, details_text: str = "", *trailers: tuple[str, bytes]) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailers), details=details_text)


@pytest.mark.parametrize(
    ("code", "worker", "name"),
    [
        (grpc.StatusCode.UNAVAILABLE, "adapter-0", "worker_lost"),
        (grpc.StatusCode.UNAVAILABLE, "", "internal"),
        (grpc.StatusCode.CANCELLED, "adapter-0", "cancelled"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", "deadline_exceeded"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "", "too_large"),
        (grpc.StatusCode.UNIMPLEMENTED, "", "internal"),
    ],
)
def test_a_transport_failure_without_a_status_of_ours_is_judged_by_its_code(code, worker: str, name: str) -> None:
    assert from_rpc_error(rpc_error(code, "why"), worker).name == name


def test_a_damaged_status_in_the_trailers_is_no_crash() -> None:
    error = from_rpc_error(rpc_error(grpc.StatusCode.UNKNOWN, "x", ("grpc-status-details-bin", b"\xff\xff")))
    assert error.name == "internal"


def test_a_quotas_refusal_names_the_tenant_in_grpcs_own_words() -> None:
    exceeded = errors.QuotaExceeded("acme", "tokens_per_minute", 1000, 2.5, "m")
    failure = details(to_status(exceeded), error_details_pb2.QuotaFailure)[0]
    assert [violation.subject for violation in failure.violations] == ["tenant:acme/model:m"]
    retry = details(to_status(exceeded), error_details_pb2.RetryInfo)[0]
    assert retry.retry_delay.ToMilliseconds() == 2500
    too_large = to_status(errors.RequestTooLargeForQuota("acme", 2000, 900))
    assert details(too_large, error_details_pb2.QuotaFailure)
    assert not details(too_large, error_details_pb2.RetryInfo)
