"""The simulated engine: a pure step over virtual time.

It batches continuously, as vLLM does. A step computes one chunk of waiting prompts and one token of every running sequence,
and takes as long as both together; what it made is told when it ends:

    time      prefill tokens / rate  +  (base + per sequence × batch)
    begin ────────────────────────────────────────────────────────── end: tokens, next step

`submit` and `cancel` only note; `step(now)` completes what has ended by now and says when to call again. The caller owns the
clock, so a test runs an hour in a moment and every run gives the same.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import Any

from streamway.simulation.kv import KVCache, block_names
from streamway.simulation.request import SimulationRequest
from streamway.simulation.sequence import Piece, Sequence, SimulatedCall
from streamway.simulation.settings import SimulationSettings


@dataclass(slots=True)
class Begun:
    """The engine works on a call."""

    call: SimulatedCall


@dataclass(slots=True)
class Ended:
    """Every choice of a call has ended; its usage is `call.counted`."""

    call: SimulatedCall


@dataclass(slots=True)
class Broken:
    """The connection of a call breaks here; with `garbage` it says something senseless before."""

    call: SimulatedCall
    garbage: bool


Event = Begun | Piece | Ended | Broken


@dataclass(slots=True)
class Totals:
    """Counted since the engine was made."""

    calls: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0


class SimulatedEngine:
    """One engine. Not safe for threads; it has no I/O and no clock."""

    def __init__(self, settings: SimulationSettings) -> None:
        self._settings = settings
        self._kv = KVCache(settings.kv_tokens // settings.block_tokens)
        self._waiting: deque[Sequence] = deque()
        self._prefilling: list[Sequence] = []
        self._decoding: list[Sequence] = []
        self._batch: list[Sequence] = []  # what the step under way will make a token of
        self._step_ends: float | None = None
        # With a fixed rate there are no steps: each sequence has its own time.
        self._due: list[tuple[float, int, Sequence]] = []
        self._order = count()
        self._running = 0
        self.totals = Totals()

    @property
    def running(self) -> int:
        """Sequences in a slot."""
        return self._running

    @property
    def waiting(self) -> int:
        """Sequences without a slot yet."""
        return len(self._waiting)

    @property
    def kv_used(self) -> float:
        """Share of the KV cache in use, 0 … 1."""
        return self._kv.used_ratio

    def submit(self, request: SimulationRequest, tag: Any = None) -> SimulatedCall:
        """Takes a call; `step` must be called soon after."""
        call = SimulatedCall(request, tag)
        for choice, plan in enumerate(request.choices):
            sequence = Sequence(call, choice, plan)
            call.sequences.append(sequence)
            self._waiting.append(sequence)
        call.open = len(call.sequences)
        self.totals.calls += 1
        self.totals.prompt_tokens += request.prompt_tokens
        return call

    def cancel(self, call: SimulatedCall) -> None:
        """Frees everything the call holds, at once; nothing more is told about it. Idempotent."""
        if call.open:
            self.totals.cancelled += 1
            self._drop(call)

    def step(self, now: float) -> tuple[list[Event], float | None]:
        """What happened until `now`, and when to call again; None: not before something is submitted."""
        events: list[Event] = []
        if self._settings.tokens_per_s:
            return events, self._fixed_rate(now, events)
        while True:
            if self._step_ends is None:
                wake = self._begin_step(now, events)
                if self._step_ends is None:
                    return events, wake
            if self._step_ends > now:
                return events, self._step_ends
            ended, self._step_ends = self._step_ends, None
            self._end_step(ended, events)
            self._begin_step(ended, events)

    # Steps

    def _begin_step(self, now: float, events: list[Event]) -> float | None:
        """Plans a step that begins now. Without anything to do: when the first held-back sequence may go on."""
        settings = self._settings
        self._admit(now, events)
        budget = settings.prefill_chunk_tokens
        for sequence in self._prefilling:
            part = min(budget, sequence.prefill_left)
            sequence.prefill_left -= part
            budget -= part
            if not budget:
                break
        computed = settings.prefill_chunk_tokens - budget
        self._batch = [sequence for sequence in self._decoding if sequence.ready_at <= now]
        if not computed and not self._batch:
            return min((sequence.ready_at for sequence in self._decoding), default=None)
        duration = computed / settings.prefill_tokens_per_s
        if self._batch:
            duration += (settings.decode_base_ms + settings.decode_per_sequence_ms * len(self._batch)) / 1000
        self._step_ends = now + duration
        return None

    def _end_step(self, now: float, events: list[Event]) -> None:
        decoded = self._batch
        self._batch = []
        for sequence in decoded:
            if not sequence.over:
                self._make_token(sequence, now, events)
        ready = [sequence for sequence in self._prefilling if not sequence.prefill_left]
        if ready:
            self._prefilling = [sequence for sequence in self._prefilling if sequence.prefill_left]
            for sequence in ready:
                self._decoding.append(sequence)
                # The last step of a prefill makes the first token too.
                if sequence.ready_at <= now and not sequence.over:
                    self._make_token(sequence, now, events)

    def _make_token(self, sequence: Sequence, now: float, events: list[Event]) -> bool:
        """Makes the next token of a sequence; False when it was the last."""
        faulty, made = sequence.faulty, sequence.made
        if faulty and self._breaks(sequence, events):
            return False
        piece = sequence.next_piece()
        self.totals.generated_tokens += sequence.made - made  # an empty answer makes none
        sequence.ready_at = now + self._pause_s(sequence) if faulty else now
        if piece is None:
            return True
        events.append(piece)
        if not piece.finish_reason:
            return True
        self._end(sequence, events)
        return False

    def _breaks(self, sequence: Sequence, events: list[Event]) -> bool:
        faults, number = sequence.call.request.faults, sequence.made + 1
        if number not in (faults.die_at_token, faults.garbage_at_token):
            return False
        events.append(Broken(sequence.call, garbage=number == faults.garbage_at_token))
        self._drop(sequence.call)
        return True

    def _pause_s(self, sequence: Sequence) -> float:
        faults, settings = sequence.call.request.faults, self._settings
        step_s = (settings.decode_base_ms + settings.decode_per_sequence_ms * len(self._decoding)) / 1000
        stalled_s = faults.stall_s if faults.stall_at_token == sequence.made + 1 else 0.0
        return stalled_s + (faults.slow_factor - 1) * step_s

    # Fixed rate

    def _fixed_rate(self, now: float, events: list[Event]) -> float | None:
        """Makes every token that is due. Prefill takes its time, but nobody waits for another's."""
        due, gap = self._due, 1.0 / self._settings.tokens_per_s
        while True:
            if self._waiting:
                self._admit(now, events)
            if self._prefilling:
                for sequence in self._prefilling:
                    sequence.ready_at += sequence.prefill_left / self._settings.prefill_tokens_per_s
                    heapq.heappush(due, (sequence.ready_at, next(self._order), sequence))
                self._decoding += self._prefilling
                self._prefilling = []
            if not due or due[0][0] > now:
                return due[0][0] if due else None
            at, order, sequence = due[0]
            if sequence.over:  # cancelled
                heapq.heappop(due)
                continue
            faults = sequence.call.request.faults
            going = True
            while going and at <= now:
                going = self._make_token(sequence, at, events)
                at += gap * faults.slow_factor + (faults.stall_s if faults.stall_at_token == sequence.made + 1 else 0.0)
            if going:
                heapq.heapreplace(due, (at, order, sequence))
            else:
                heapq.heappop(due)

    # Slots and KV

    def _admit(self, now: float, events: list[Event]) -> None:
        settings = self._settings
        while self._waiting and self._running < settings.slots:
            sequence = self._waiting[0]
            request = sequence.call.request
            names = block_names(request.prompt, settings.block_tokens)
            # Room for the whole answer is taken at once, so that no sequence is ever put out in the middle.
            blocks = -(-(request.prompt_tokens + sequence.tokens) // settings.block_tokens) - len(names)
            # At least one token is computed, or there would be nothing to draw the first token from.
            hits = min(self._kv.matched(names), (request.prompt_tokens - 1) // settings.block_tokens)
            if not self._kv.take(names, blocks):
                return
            self._waiting.popleft()
            self._running += 1
            cached = hits * settings.block_tokens
            sequence.names, sequence.blocks, sequence.hits = names, blocks, hits
            sequence.prefill_left = request.prompt_tokens - cached
            stall = request.faults.stall_s if request.faults.stall_at_token == 1 else 0.0
            sequence.ready_at = now + request.faults.first_token_delay_s + stall
            self._prefilling.append(sequence)
            if not sequence.call.begun:
                sequence.call.begun = True
                sequence.call.cached_tokens = cached
                self.totals.cached_tokens += cached
                events.append(Begun(sequence.call))

    def _end(self, sequence: Sequence, events: list[Event]) -> None:
        call = sequence.call
        self._decoding.remove(sequence)
        call.sequences.remove(sequence)
        sequence.over = True
        self._free(sequence, computed=True)
        call.open -= 1
        if not call.open:
            events.append(Ended(call))

    def _drop(self, call: SimulatedCall) -> None:
        call.open = 0
        for sequence in call.sequences:
            sequence.over = True
            for place in (self._waiting, self._prefilling, self._decoding):
                if sequence in place:
                    place.remove(sequence)
                    if place is not self._waiting:
                        self._free(sequence, computed=place is self._decoding)
                    break
        call.sequences.clear()

    def _free(self, sequence: Sequence, *, computed: bool) -> None:
        """Gives slot and blocks back; what was computed of prompt and answer stays for a longer conversation to find."""
        self._running -= 1
        names = sequence.names[: sequence.hits]
        if computed:
            text = sequence.call.request.prompt + b"\x02assistant\x03" + "".join(sequence.answer).encode()
            names = block_names(text, self._settings.block_tokens)
        self._kv.give_back(sequence.names, sequence.blocks, names)
