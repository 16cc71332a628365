"""`docs/acceptance.md` D4: three times what a mesh can do, over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.support.clients import chat_body
from tests.support.mesh import ENDS_SOON, MeshProcesses

WORKERS, SLOTS, RATE, TOKENS = 2, 4, 20, 20
# The engines make a fixed number of tokens a second in each slot, so that what they can do does not depend on the machine.
CAPACITY_PER_S: Final = WORKERS * SLOTS * RATE / TOKENS
DURATION_S: Final = 60.0 if os.environ.get("FULL") == "1" else 10.0
# Until every slot and queue has filled.
WARM_S: Final = 2.0
_BREAKER: Final = re.compile(r"^streamway_router_breakers\{.*\} (\d)", re.MULTILINE)


class Overloaded:
    """A mesh, its clients, and what they were told."""

    def __init__(self, mesh: MeshProcesses, session: aiohttp.ClientSession) -> None:
        self._mesh = mesh
        self._session = session
        self.statuses: Counter[int] = Counter()
        self.hasty: list[str] = []
        self.open_at_once = 0

    async def ask(self, number: int) -> int:
        """One chat, read to its end; the status."""
        body = chat_body(f"question {number}", max_tokens=TOKENS)
        async with self._session.post(f"{self._mesh.edge_url}/v1/chat/completions", json=body) as answer:
            text = await answer.text()
            self.statuses[answer.status] += 1
            if answer.status == 200:
                assert json.loads(text)["usage"]["completion_tokens"] == TOKENS
            elif int(answer.headers.get("Retry-After", "0")) < 1:
                self.hasty.append(text)
            return answer.status

    async def load(self, group: asyncio.TaskGroup) -> float:
        """Asks at three times the capacity. Returns the part of it that was used once all was full."""
        began, asked = time.monotonic(), 0
        before, warm_at = 0.0, 0.0
        while (passed := time.monotonic() - began) < DURATION_S:
            while asked < passed * 3 * CAPACITY_PER_S:
                group.create_task(self.ask(asked))
                asked += 1
            if not warm_at and passed > WARM_S:
                warm_at = time.monotonic()
                before = await self.tokens()
            self.open_at_once = max(self.open_at_once, await self.open_breakers())
            await asyncio.sleep(0.05)
        made = await self.tokens() - before
        return made / ((time.monotonic() - warm_at) * WORKERS * SLOTS * RATE)

    async def tokens(self) -> float:
        """Made by all engines so far."""
        made = 0.0
        for number in range(WORKERS):
            shown = await self._mesh.metrics(f"adapter-{number}")
            made += float(shown.split("\nstreamway_tokens_total ", 1)[1].split("\n", 1)[0])
        return made

    async def open_breakers(self) -> int:
        """Those that are open now, of any worker, for any tier."""
        return _BREAKER.findall(await self._mesh.metrics("router-0")).count("1")


@pytest.mark.alone
@pytest.mark.timeout(240)
async def test_d4_at_three_times_capacity_goodput_stays_and_the_rest_is_told_when_to_come_back(tmp_path: Path) -> None:
    environment = {
        **ENDS_SOON,
        "STREAMWAY_ADAPTER_SIMULATION": json.dumps({"slots": SLOTS, "tokens_per_s": RATE}),
        "STREAMWAY_ADAPTER_SLOTS": str(SLOTS),
    }
    mesh = MeshProcesses(tmp_path, arguments=("--workers", str(WORKERS)), environment=environment, start_s=120)
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            overloaded = Overloaded(mesh, session)
            async with asyncio.TaskGroup() as group:
                goodput = await overloaded.load(group)
                # Still while what was accepted is worked off.
                over_at = time.monotonic()
                while await overloaded.ask(-1) != 200:
                    assert time.monotonic() - over_at < 10, "it does not recover"
                    await asyncio.sleep(0.1)
                assert time.monotonic() - over_at < 10
            assert goodput >= 0.9
            assert set(overloaded.statuses) <= {200, 429, 503}, overloaded.statuses
            assert overloaded.statuses[429] > overloaded.statuses[200], "it was too much"
            assert not overloaded.hasty, "each refusal says when to come back"
            assert overloaded.open_at_once == 0, "load is nobody's failure"
    finally:
        mesh.close()
