"""Runs rounds: streams on all surfaces, one deed while they run, and the account of each."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from services.supervisor.chaos.clients import PATIENCE_S, Question, ask
from services.supervisor.chaos.deeds import Mischief, NotPossible
from services.supervisor.chaos.mesh import ChaosMesh
from services.supervisor.core.account import Account
from services.supervisor.core.rounds import Round, Surface
from services.supervisor.core.verdict import Row, Witness, judge
from streamway.runtime.ids import new_secret_id
from streamway.simulation.request import read
from streamway.simulation.settings import SimulationSettings

_SEED: Final = 5
# Streams of a round do not begin in one moment, so that at the deed some are further than others.
_STAGGER_S: Final = 0.02
_LOOK_S: Final = 0.02
# Where new work is asked for while the store is away, it is after this long.
_NEWCOMER_AFTER_S: Final = 1.0
_NEWCOMER_TOKENS: Final = 30


class Runner:
    """One run on one mesh."""

    def __init__(self, mesh: ChaosMesh, model: str) -> None:
        self._mesh = mesh
        self._model = model
        self._run = new_secret_id()[:8]
        self._asked = 0

    async def run(self, round_: Round) -> Row:
        """One round, and the mesh whole again after it. Raises NotWhole when that takes too long."""
        began = time.monotonic()
        row = await _Course(self._mesh, round_, self._stream).run()
        return replace(row, took_s=round(time.monotonic() - began, 1))

    def _stream(self, tokens: int, durability: str, *, keyed: bool) -> tuple[Question, Account]:
        self._asked += 1
        prompt = f"chaos {self._run} {self._asked}: how does a river find the sea?"
        key = prompt if keyed else ""
        question = Question(self._model, prompt, tokens, _SEED, durability, key)
        return question, Account(simulated_answer(prompt, tokens), tokens)


class _Course:
    """One round while it runs."""

    def __init__(self, mesh: ChaosMesh, round_: Round, stream: Callable[..., tuple[Question, Account]]) -> None:
        self._mesh = mesh
        self._round = round_
        self._stream = stream
        self._streams: list[tuple[Surface, Account]] = []
        self._done = asyncio.Event()
        self._problem = ""
        self._mischief: Mischief | None = None
        self._target = ""
        self._done_at = 0.0
        self._live: dict[int, bool] = {}
        self._extra: list[Witness] = []

    async def run(self) -> Row:
        try:
            return await self._run()
        finally:  # also where the run is broken off: nothing stays paused, no store without its folder
            if self._mischief is not None:
                self._mischief.put_back()

    async def _run(self) -> Row:
        round_ = self._round
        async with asyncio.TaskGroup() as group:
            for number in range(round_.streams):
                surface = round_.surfaces[number % len(round_.surfaces)]
                question, account = self._stream(round_.tokens, round_.durability, keyed=True)
                self._streams.append((surface, account))
                group.create_task(
                    ask(surface, number // len(round_.surfaces), self._mesh, question, account, self._look)
                )
                await asyncio.sleep(_STAGGER_S)
            note = await self._disturb(group)
        mischief = self._mischief
        await self._mesh.whole(mischief.killed if mischief is not None else {})
        if round_.newcomers and mischief is not None:
            self._extra.append(
                Witness("new", await self._newcomer(), live=False, hit=False, expected_durability="relaxed")
            )
        witnesses = [
            Witness(surface, account, id(account) in self._live, self._live.get(id(account), False))
            for surface, account in self._streams
        ]
        return judge(round_, self._target, [*witnesses, *self._extra], self._done_at or time.monotonic(), note)

    async def _disturb(self, group: asyncio.TaskGroup) -> str:
        """Waits for the moment, then until what was done is undone. Gives a note for the table."""
        if self._round.deed == "nothing":
            self._done_at = time.monotonic()
            self._live = {id(account): False for _, account in self._streams}
            return ""
        until = time.monotonic() + PATIENCE_S
        while not self._done.is_set():
            if all(account.over for _, account in self._streams) or time.monotonic() > until:
                return f"no stream was caught in {self._round.phase}"
            for _, account in self._streams:  # waiting in a queue tells nothing, so it must be looked for
                self._look(account)
            await asyncio.sleep(_LOOK_S)
        mischief = self._mischief
        if mischief is None:
            return f"not done: {self._problem}"
        if self._round.newcomers:
            group.create_task(self._early_newcomer(mischief))
        await mischief.last()
        return mischief.note

    def _look(self, account: Account) -> None:
        """Does the deed when this stream says that the moment has come: at once, before the next event is read."""
        now = time.monotonic()
        if self._done.is_set() or self._round.deed == "nothing" or not self._round.reached(account, now):
            return
        if self._round.deed == "empty" and not self._all_begun():
            # What a store forgets before its engine call has begun can't be gone on with, and is told so.
            return
        self._done.set()
        try:
            self._target = self._choose(account)
            mischief = Mischief(self._mesh, self._round, self._target)
            mischief.do()
        except NotPossible as problem:
            self._problem = str(problem)
            return
        self._mischief = mischief
        self._done_at = time.monotonic()
        self._live = {id(each): self._concerns(each) for each in self._running()}

    def _all_begun(self) -> bool:
        begun = all(account.started or account.over for _, account in self._streams)
        return begun and len(self._streams) == self._round.streams

    def _running(self) -> list[Account]:
        return [account for _, account in self._streams if not account.over]

    def _choose(self, account: Account) -> str:
        names = self._mesh.names(self._round.victim)
        if not names:
            raise NotPossible(f"the mesh has no {self._round.victim} of its own")
        adapter = self._round.victim == "adapter"
        # That of the stream whose moment it is; where it has none, as gRPC has no edge, the one that most streams have.
        its = [each.worker if adapter else each.through for each in (account, *self._running())]
        known = [name for name in its if name in names]
        if its[0] in names or not known:
            return its[0] if known else names[0]
        return max(names, key=known.count)

    def _concerns(self, account: Account) -> bool:
        if self._round.victim == "valkey":
            return True
        return self._target in (account.through, account.worker)

    async def _early_newcomer(self, mischief: Mischief) -> None:
        await asyncio.sleep(_NEWCOMER_AFTER_S)
        account = await self._newcomer()
        accepted, back = account.accepted_at, mischief.undone_at
        meanwhile = accepted is not None and (back is None or accepted < back)
        self._extra.append(
            Witness("new", account, live=False, hit=False, expected_durability="off" if meanwhile else "")
        )

    async def _newcomer(self) -> Account:
        """New work, without a key: it runs also where the store is away, and says so."""
        question, account = self._stream(_NEWCOMER_TOKENS, "relaxed", keyed=False)
        await ask("websocket", 0, self._mesh, question, account, lambda _: None)
        return account


def simulated_answer(prompt: str, tokens: int) -> str:
    """What the simulated engine answers when nothing happens: its text is a function of the conversation and the seed."""
    body = json.dumps({"messages": [{"role": "user", "content": prompt}], "seed": _SEED}).encode()
    return read(body, SimulationSettings()).choices[0].text.start(tokens)
