"""Where generations are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.inference_adapter.core.concurrency import Concurrency
from services.inference_adapter.core.engine_pace import EnginePace
from services.inference_adapter.core.memory import Memory
from services.inference_adapter.core.silence import SilenceLimits
from services.inference_adapter.interfaces import Backend, Turns
from services.inference_adapter.io.fanout.flusher import Flusher
from services.inference_adapter.io.retries import Retries
from services.inference_adapter.io.till import Till
from services.inference_adapter.metrics import AdapterMetrics
from streamway.runtime.clock import Clock
from streamway.telemetry.hops import Hops


@dataclass(frozen=True, slots=True)
class Workplace:
    """What all generations of a worker share.

    `new_epoch` makes the epoch of an engine call from its attempt. An engine call that is silent beyond `silence` is given up.
    `rest` is told for how many seconds the engine wants no new call, `doubt` that a call was given up for its silence.
    """

    worker: str
    backend: Backend
    memory: Memory
    flusher: Flusher
    clock: Clock
    metrics: AdapterMetrics
    pace: EnginePace
    concurrency: Concurrency
    new_epoch: Callable[[int], int]
    flush_units: int
    silence: SilenceLimits
    retries: Retries
    rest: Callable[[float], None]
    doubt: Callable[[], None]
    turns: Turns
    hops: Hops
    till: Till
