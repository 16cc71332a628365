"""What makes two requests the same."""

from __future__ import annotations

from services.router.core.idempotency import Claim, digest_of, digest_of_key
from streamway.v1 import common_pb2


def _request(**fields: object) -> common_pb2.GenerationRequest:
    message = common_pb2.Message(role="user", content="hello")
    return common_pb2.GenerationRequest(model="m", messages=[message], **fields)  # type: ignore[arg-type]


def test_a_request_sent_again_is_the_same_whatever_its_envelope_says() -> None:
    first = digest_of(_request(generation="g1", session="a", traceparent="t1", deadline_unix_ms=5, tenant="x"))
    again = digest_of(_request(generation="g2", metadata={"try": "2"}, idempotency_key="k"))
    assert first == again


def test_another_question_model_or_sampling_is_another_request() -> None:
    digests = {
        digest_of(request)
        for request in (
            _request(),
            _request(sampling=common_pb2.Sampling(temperature=0)),
            _request(limits=common_pb2.Limits(max_tokens=5)),
            _request(durability=common_pb2.DURABILITY_STRICT),
            _request(openai_body=b"{}"),
            common_pb2.GenerationRequest(model="n", messages=[common_pb2.Message(role="user", content="hello")]),
        )
    }
    assert len(digests) == 6


def test_a_claim_survives_being_written_down() -> None:
    claim = Claim("0197-x", digest_of(_request()))
    assert Claim.parse(str(claim)) == claim


def test_keys_of_any_form_have_a_digest() -> None:
    assert digest_of_key("a b\n{x}:") != digest_of_key("a b\n{x}")
    assert len(digest_of_key("é" * 100)) == 64
