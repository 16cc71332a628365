"""Events as numbering makes them: the last position, and bytes."""

from __future__ import annotations

from services.inference_adapter.core.delivery import Kept
from streamway.v1 import common_pb2


def serialised(*events: common_pb2.Event) -> list[Kept]:
    return [(event.position, event.SerializeToString()) for event in events]
