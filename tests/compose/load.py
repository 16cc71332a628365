"""Streams on three surfaces through what the containers publish, each compared with what an undisturbed run answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from services.supervisor.chaos.clients import Question, ask
from services.supervisor.chaos.runner import simulated_answer
from services.supervisor.core.account import Account
from services.supervisor.core.rounds import Surface
from tests.compose.containers import Failed, Project

SEED = 5
SURFACES: tuple[Surface, ...] = ("websocket", "sse", "grpc")


class Doors:
    """Where clients come in: through the ports that Compose publishes now."""

    def __init__(self, project: Project, key: str) -> None:
        self._project = project
        self.credentials: Mapping[str, str] = {"Authorization": f"Bearer {key}"}
        self.edge_url = ""
        self._routers: list[str] = []
        self.look()

    def look(self) -> None:
        """Containers that were replaced have other ports; what no container has any more is kept until it is known better."""
        if edges := self._project.published("edge", 8080):
            self.edge_url = f"http://{edges[0]}"
        self._routers = self._project.published("router", 7001) or self._routers

    def router(self, number: int) -> tuple[str, str]:
        address = self._routers[number % len(self._routers)]
        return address, address

    def edge_behind(self, connection: Any) -> str:
        return ""


class Load:
    """Streams that run side by side until each has ended, whatever breaks."""

    def __init__(self, doors: Doors, name: str) -> None:
        self._doors = doors
        self._name = name
        self.accounts: list[tuple[Surface, Account]] = []

    async def stream(self, tokens: int) -> Account:
        """One stream from its beginning to its end."""
        number = len(self.accounts)
        surface = SURFACES[number % len(SURFACES)]
        prompt = f"{self._name} {number}: how does a river find the sea?"
        question = Question("simulated", prompt, tokens, SEED, "strict", key=prompt)
        account = Account(simulated_answer(prompt, tokens), tokens)
        self.accounts.append((surface, account))
        await ask(surface, number, self._doors, question, account, lambda _: None)
        return account

    async def streaming(self, number: int, units: int, within_s: float = 60.0) -> None:
        """Waits until so many streams have so many tokens and are not over. Raises Failed."""
        limit = asyncio.get_running_loop().time() + within_s
        while sum(account.units >= units and not account.over for _, account in self.accounts) < number:
            if asyncio.get_running_loop().time() > limit:
                raise Failed(f"no {number} streams with {units} tokens within {within_s:g} s")
            await asyncio.sleep(0.05)

    def workers(self) -> Counter[str]:
        """How many streams each worker had, at last."""
        return Counter(account.worker for _, account in self.accounts)

    def judge(self) -> str:
        """One line for all. Raises Failed when a stream lost, repeated or changed anything."""
        for number, (surface, account) in enumerate(self.accounts):
            if account.problem or account.lost or account.repeated:
                raise Failed(
                    f"stream {number} on {surface}, at {account.cursor}: {account.problem or 'positions'};"
                    f" {account.lost} lost, {account.repeated} repeated"
                )
        tokens = sum(account.units for _, account in self.accounts)
        breaks = sum(account.breaks for _, account in self.accounts)
        return f"{len(self.accounts)} streams whole, {tokens} tokens, {breaks} broken connections, 0 lost, 0 repeated"
