"""The same turns against a mesh of processes, with the same engine behind it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
from pydantic import SecretStr

from benchmarks.simulate.conversation import Conversations
from benchmarks.simulate.results import Outcome
from benchmarks.simulate.scenario import Scenario, Turn
from benchmarks.simulate.worker import MODEL
from services.router.core.strategy import StrategyName
from streamway.config import SharedSettings
from streamway.errors import from_status
from streamway.rpc import mesh_metadata
from streamway.rpc.options import client_options
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc

_START_S = 90.0
_END_S = 120.0


def run_live(scenario: Scenario, strategy: StrategyName, *, fair: bool = True) -> list[Outcome]:
    """Starts a mesh with the scenario's workers, asks its turns over one gRPC stream, and takes the mesh down.

    `fair` as in `LiveClient`.
    """
    token = secrets.token_hex(16)
    settings = {
        "STREAMWAY_ADAPTER_SIMULATION": scenario.engine.model_dump_json(),
        "STREAMWAY_ADAPTER_SLOTS": str(scenario.engine.slots),
        "STREAMWAY_ADAPTER_PRELOAD_DEPTH": str(scenario.preload_depth),
        "STREAMWAY_ROUTER_QUEUE_LIMIT": str(scenario.queue_limit),
        "STREAMWAY_ROUTER_STRATEGY": strategy,
        # The simulation's does not move.
        "STREAMWAY_ADAPTER_MOST_PRELOAD_DEPTH": str(scenario.preload_depth),
        "STREAMWAY_LOG_LEVEL": "warning",
    }
    if scenario.slots_ahead is not None:
        settings["STREAMWAY_ADAPTER_SLOTS_AHEAD"] = str(scenario.slots_ahead)
    with tempfile.TemporaryDirectory() as folder:
        if len(scenario.tiers) > 1:
            tenants = Path(folder) / "tenants.yaml"
            tenants.write_text(tenants_of(scenario), encoding="utf-8")
            settings |= {"STREAMWAY_MESH_TOKEN": token, "STREAMWAY_TENANTS_FILE": str(tenants)}
        ready = Path(folder) / "ready.json"
        arguments = ["-m", "services.supervisor", "up", "--engine", "simulated", "--port", "0"]
        arguments += ["--workers", str(scenario.workers), "--data-dir", f"{folder}/data", "--ready-file", str(ready)]
        mesh = subprocess.Popen([sys.executable, *arguments], env={**os.environ, **settings}, stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + _START_S
            while not ready.exists():
                if time.monotonic() > until or mesh.poll() is not None:
                    raise SystemExit("the mesh did not come up; its log is above")
                time.sleep(0.1)
            rows = json.loads(ready.read_text(encoding="utf-8"))["processes"]
            address = next(row["address"] for row in rows if row["name"] == "router-0")
            metadata = mesh_metadata(SharedSettings(mesh_token=SecretStr(token)))
            return asyncio.run(LiveClient(scenario, fair=fair, metadata=metadata).run(address))
        finally:
            mesh.send_signal(signal.SIGTERM)
            mesh.wait(60)


def tenants_of(scenario: Scenario) -> str:
    """One tenant for each tier, of its name and with its weight; nobody has limits."""
    rows = [
        f"  {tier.name}: {{tier: {tier.name}, weight: {tier.weight}, highest_priority: 127, concurrency: unlimited}}"
        for tier in scenario.tiers
    ]
    return "\n".join(["tenants:", *rows]) + "\n"


class LiveClient:
    """Asks every turn at its time, one at a time of each session.

    With several tiers each turn is asked by the tenant of its tier's name, with its priority, unless `fair` is False: then all
    are one tenant's and alike. Tenants are believed with `metadata` that has the mesh's token.
    """

    def __init__(self, scenario: Scenario, *, fair: bool = True, metadata: grpc.aio.Metadata | None = None) -> None:
        self._scenario = scenario
        self._fair = fair
        self._metadata = metadata
        self._conversations = Conversations(scenario)
        self._commands: asyncio.Queue[router_pb2.ConnectCommand | None] = asyncio.Queue()
        self._busy: dict[int, deque[Turn]] = {}
        self._live: dict[str, tuple[Turn, Outcome, list[str]]] = {}
        self._outcomes: list[Outcome] = []
        self._began = 0.0
        self._asked_all = False

    async def run(self, address: str) -> list[Outcome]:
        """Every turn's outcome."""
        options = client_options(32 * 1024 * 1024)
        async with grpc.aio.insecure_channel(address, options=options) as channel, asyncio.TaskGroup() as group:
            self._began = time.monotonic()
            group.create_task(self._ask_all())
            call: Any = router_pb2_grpc.RouterServiceStub(channel).Connect(self._requests(), metadata=self._metadata)
            async with asyncio.timeout(self._scenario.duration_s + _END_S):
                async for response in call:
                    for event in response.events:
                        self._settle(event)
                    if self._asked_all and not self._live:
                        break
            self._commands.put_nowait(None)
            call.cancel()
        return self._outcomes

    async def _requests(self) -> AsyncIterator[router_pb2.ConnectRequest]:
        while (command := await self._commands.get()) is not None:
            yield router_pb2.ConnectRequest(commands=[command])

    async def _ask_all(self) -> None:
        for turn in self._scenario.turns():
            await asyncio.sleep(max(0.0, turn.at - self._now()))
            if turn.session in self._busy:
                self._busy[turn.session].append(turn)
            else:
                self._busy[turn.session] = deque()
                self._ask(turn)
        self._asked_all = True

    def _ask(self, turn: Turn) -> None:
        request = common_pb2.GenerationRequest(
            generation=new_generation_id(),
            model=MODEL,
            session=f"session-{turn.session}",
            messages=[common_pb2.Message(role=role, content=text) for role, text in self._conversations.ask(turn)],
            limits=common_pb2.Limits(max_tokens=turn.answer_tokens),
        )
        if len(self._scenario.tiers) > 1:
            tier = turn.tier if self._fair else self._scenario.tiers[0]
            request.tenant, request.priority = tier.name, tier.priority
        outcome = Outcome(turn.session, turn.tier.name, self._now())
        self._outcomes.append(outcome)
        self._live[request.generation] = (turn, outcome, [])
        self._commands.put_nowait(
            router_pb2.ConnectCommand(open=router_pb2.Open(request=request, delivery=router_pb2.DELIVERY_EVENTS))
        )

    def _settle(self, event: common_pb2.Event) -> None:
        found = self._live.get(event.generation)
        if found is None:
            return
        turn, outcome, text = found
        match event.WhichOneof("event"):
            case "accepted":
                outcome.worker, outcome.branch = event.accepted.worker, event.accepted.route
            case "token":
                now = self._now()
                if outcome.first_at < 0:
                    outcome.first_at = now
                outcome.token_times.append(now)
                text.append(event.token.text)
            case "finished":
                usage = event.finished.usage
                outcome.prompt_tokens, outcome.cached_tokens = usage.prompt_tokens, usage.cached_prompt_tokens
                outcome.made_tokens = usage.completion_tokens
                self._over(event.generation, turn, "".join(text))
            case "error":
                problem = from_status(event.error.status)
                outcome.refused, outcome.http = problem.name, problem.row.http
                outcome.retry_after_s = problem.retry_after_s
                self._over(event.generation, turn, "")

    def _over(self, generation: str, turn: Turn, text: str) -> None:
        _, outcome, _ = self._live.pop(generation)
        outcome.ended_at = self._now()
        self._conversations.answered(turn, text)
        waiting = self._busy[turn.session]
        if waiting:
            self._ask(waiting.popleft())
        else:
            del self._busy[turn.session]

    def _now(self) -> float:
        return time.monotonic() - self._began
