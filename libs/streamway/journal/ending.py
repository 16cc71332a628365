"""The end of a generation that nobody runs any more."""

from __future__ import annotations

from streamway.errors import StreamwayError, to_status
from streamway.journal import functions
from streamway.journal.entries import encode_events
from streamway.v1 import common_pb2
from streamway.valkey.session import Session


def error_payload(error: StreamwayError) -> bytes:
    """The payload of an `end` entry that says why: one error event, whose position the entry gives it."""
    return encode_events([common_pb2.Event(error=common_pb2.Error(status=to_status(error)))])


async def end_unrun(
    session: Session, generation: str, epoch: int, ref: str, by: str, end_payload: bytes, ttl_ms: int
) -> functions.BeginAnswer:
    """Begins and ends in one step, so that nobody finds a begin without an end; who wrote before is fenced.

    `by` is the process that does it. Raises LinkLost or StoreRefused.
    """
    return await functions.begin(
        session, generation, epoch, ref, by, b"", again=False, ttl_ms=ttl_ms, end_payload=end_payload
    )
