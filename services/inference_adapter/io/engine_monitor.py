"""Asks the engine how busy it is, notices when it does not answer, and lets it rest when it asks for that."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from services.inference_adapter.core.kv_pressure import KVPressure
from services.inference_adapter.interfaces import Backend, EngineLoad
from streamway.errors import StreamwayError
from streamway.runtime.clock import Clock

_log = structlog.get_logger("adapter")
_LONGEST_REST_S: Final = 30.0
# Of an engine of ours that makes no token for so long the process is started anew.
_LONGEST_DOUBT_S: Final = 60.0


class EngineMonitor:
    """Knows the engine's last load. `on_change` is told whether it takes work, `on_kv_full` whether its KV cache is too full for
    another prefill, when that changes.

    A call that was given up for its silence is a doubt: answering here says only that the engine's port is alive. It is asked for
    one token (`speaks`), and gets no work until one came, of that call or of an answer that runs (`tokens` counts them).

    An engine that does not tell its KV use is judged by the memory of its GPU, where `gpu_used` reads one. One that tells is
    not: such engines take nearly all of that memory when they start.
    """

    def __init__(
        self,
        backend: Backend,
        kv: KVPressure,
        clock: Clock,
        every_s: float,
        timeout_s: float,
        on_change: Callable[[bool], None],
        on_kv_full: Callable[[bool], None],
        gpu_used: Callable[[], float | None] = lambda: None,
        speaks: Callable[[], Awaitable[bool]] | None = None,
        tokens: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._backend = backend
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._on_change = on_change
        self._kv = kv
        self._on_kv_full = on_kv_full
        self._gpu_used = gpu_used
        self._speaks = speaks
        self._tokens = tokens
        # How many tokens there were when it was doubted, and since when it is.
        self._doubted_at_tokens: float | None = None
        self._doubted_at = 0.0
        self._speechless = False
        self._wake = asyncio.Event()
        self.hopeless = asyncio.Event()
        self._answers = True
        self._rests_until = 0.0
        self._told = True
        self._put_aside: int | None = None
        self.load = EngineLoad(0, 0)

    @property
    def kv_full(self) -> bool:
        """The KV cache is too full for another prefill."""
        return self._kv.pressed

    @property
    def healthy(self) -> bool:
        """It answers, makes tokens as far as is known, and has not asked for a rest."""
        return self._answers and not self._speechless and self._clock.monotonic() >= self._rests_until

    def doubt(self) -> None:
        """A call was given up for its silence."""
        if self._speaks is not None and self._doubted_at_tokens is None:
            self._doubted_at_tokens, self._doubted_at = self._tokens(), self._clock.monotonic()
            self._wake.set()

    def rest(self, seconds: float) -> None:
        """The engine wants no new call for so long; it is believed up to half a minute."""
        seconds = min(seconds, _LONGEST_REST_S)
        self._rests_until = max(self._rests_until, self._clock.monotonic() + seconds)
        _log.warning("engine_rests", seconds=seconds)
        self.tick()

    def tick(self) -> None:
        """Time has passed."""
        healthy = self.healthy
        if healthy != self._told:
            self._told = healthy
            self._on_change(healthy)

    async def run(self) -> None:
        """Asks until cancelled."""
        while True:
            await self.check()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._wake.wait()
            self._wake.clear()

    async def check(self) -> None:
        """Asks once."""
        try:
            async with asyncio.timeout(self._timeout_s):
                self.load = await self._backend.load()
            answers, problem = True, ""
        except (StreamwayError, OSError) as error:
            answers, problem = False, str(error) or type(error).__name__
        if answers != self._answers:
            self._answers = answers
            if answers:
                _log.info("engine_answers_again")
            else:
                _log.warning("engine_does_not_answer", problem=problem)
        if answers and self._doubted_at_tokens is not None:
            await self._ask_for_a_token(self._doubted_at_tokens)
        self.tick()
        if not answers:
            return
        used = self._gpu_used() if self.load.kv_used is None else self.load.kv_used
        put_aside = self._newly_put_aside()
        if self._kv.look(used, self._clock.monotonic(), put_aside):
            _log.warning("kv_pressure", pressed=self.kv_full, used=used, put_aside=put_aside)
            self._on_kv_full(self.kv_full)

    def _newly_put_aside(self) -> int:
        """Sequences put aside since the last look. An engine that was started anew counts from 0 again."""
        before, self._put_aside = self._put_aside, self.load.put_aside
        return max(0, self.load.put_aside - before) if before is not None else 0

    async def _ask_for_a_token(self, before: float) -> None:
        assert self._speaks is not None
        spoke = self._tokens() > before or await self._speaks() or self._tokens() > before
        if spoke:
            self._doubted_at_tokens = None
        if spoke is self._speechless:
            self._speechless = not spoke
            _log.warning("engine_makes_no_token" if self._speechless else "engine_makes_tokens_again")
        if self._clock.monotonic() - self._doubted_at > _LONGEST_DOUBT_S and self._speechless:
            self.hopeless.set()
