"""The reservations of this router: made in the store, renewed while their generations live, settled at their end."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from services.router.io.journal import Journal
from services.router.metrics import RouterMetrics
from streamway.errors import StoreUnavailable
from streamway.quota import Account, Demand, Level, Verdict, charge, renew, reserve, send_settle
from streamway.quota.charge import Charge, Ending
from streamway.runtime.clock import Clock
from streamway.v1 import common_pb2
from streamway.valkey.session import Reply, Session

_log = structlog.get_logger("router")
# In one call to the store; a script holds up everybody else's.
_MOST_RENEWED: Final = 500
_MOST_UNSETTLED: Final = 20_000
_MOST_TENANTS: Final = 10_000
_AGAIN_S: Final = 1.0


@dataclass(slots=True)
class _Held:
    """`charged`: the store has counted it."""

    demand: Demand
    prompt_tokens: int
    charged: bool


@dataclass(slots=True)
class _Unsettled:
    demand: Demand
    charge: Charge
    sent_at: float = -_AGAIN_S


class Quotas:
    """Reserves for tenants that have limits. Nobody else's requests touch the store.

    While the store is away the last known levels go on here, with all of the limits for this router alone; what is used then is
    charged in the store if it is back by the end of the generation.
    """

    def __init__(self, journal: Journal, clock: Clock, metrics: RouterMetrics, *, lease_s: float, share: float) -> None:
        self._journal = journal
        self._clock = clock
        self._metrics = metrics
        self._lease_s = lease_s
        self._lease_ms = int(lease_s * 1000)
        self._share = share
        self._held: dict[str, _Held] = {}
        self._unsettled: OrderedDict[str, _Unsettled] = OrderedDict()
        # What each (tenant, model) had left last, for when the store is away, and what has been used here since it is.
        self._levels: OrderedDict[tuple[str, str], tuple[Level, Level]] = OrderedDict()
        self._accounts: dict[str, Account] = {}

    def __len__(self) -> int:
        return len(self._held)

    async def reserve(self, demand: Demand, prompt_tokens: int, *, strict: bool) -> common_pb2.Allowance | None:
        """Takes a slot, a request and tokens, and tells what is left. Raises QuotaExceeded, RequestTooLargeForQuota, and for
        `strict` StoreUnavailable."""

        async def ask(session: Session) -> Verdict:
            return await reserve(session, demand, self._lease_ms, self._share)

        charged = True
        try:
            verdict = await self._journal.steps(ask)
        except StoreUnavailable:
            if strict:
                raise
            charged, verdict = False, self._account(demand).reserve(demand, self._now_ms())
            self._metrics.quota_local.inc()
        else:
            self._accounts.clear()
            self._remember(demand, verdict)
        refused = charge.refusal(demand, verdict, self._share)
        if refused is not None:
            raise refused
        self._held[demand.id] = _Held(demand, prompt_tokens, charged)
        self._metrics.quota_slots.set(len(self._held))
        return charge.told(demand, verdict)

    def close(self, generation: str) -> None:
        """Nothing came of it."""
        self._end(generation, lambda held: charge.close(held.demand.tokens) if held.charged else Charge(Ending.CLOSED))

    def answered(self, generation: str) -> None:
        """The cache answered it."""
        self._end(
            generation, lambda held: charge.answered(held.demand.tokens) if held.charged else Charge(Ending.SETTLED, -1)
        )

    def overtaken(self, generation: str) -> None:
        """The cache answered it after its dispatch."""
        self.answered(generation)

    def ended(self, generation: str, event: common_pb2.Event) -> None:
        """With its last event."""

        def used(held: _Held) -> Charge:
            by = charge.settle if held.charged else charge.unused
            return by(event, held.demand.tokens, held.prompt_tokens)

        self._end(generation, used)

    def abandon(self, generation: str) -> None:
        """Its worker was lost, or its end was not seen: the slot is free, and the charge stays."""
        self._end(generation, lambda _: charge.abandon())

    async def run(self) -> None:
        """Renews leases and repeats what could not be settled, until cancelled."""
        due = self._clock.monotonic() + self._lease_s / 3
        while True:
            await asyncio.sleep(min(_AGAIN_S, self._lease_s / 3))
            self._settle_again()
            if self._clock.monotonic() >= due:
                due = self._clock.monotonic() + self._lease_s / 3
                await self._renew()

    def _end(self, generation: str, how: Callable[[_Held], Charge]) -> None:
        held = self._held.pop(generation, None)
        if held is None:
            return
        self._metrics.quota_slots.set(len(self._held))
        charged = how(held)
        self._metrics.quota_endings.labels(charged.ending).inc()
        account = self._accounts.get(held.demand.tenant)
        if account is not None:
            missing = Charge(charged.ending)
            if not held.charged and charged.ending is not Ending.ABANDONED:
                # Here it was counted; what the store is told is about a count it has not made.
                missing = Charge(charged.ending, 1, held.demand.tokens)
            requests, tokens = charged.requests_back + missing.requests_back, charged.tokens_back + missing.tokens_back
            account.settle(held.demand, requests, tokens, self._now_ms())
        if charged.ending is Ending.ABANDONED and not held.charged:
            return
        self._unsettled[generation] = unsettled = _Unsettled(held.demand, charged)
        while len(self._unsettled) > _MOST_UNSETTLED:
            # Its slot expires, its charge stays.
            self._unsettled.popitem(last=False)
        self._send(generation, unsettled)

    def _send(self, generation: str, unsettled: _Unsettled) -> None:
        session = self._journal.link.current
        if session is None:
            return
        unsettled.sent_at = self._clock.monotonic()

        def settled(reply: Reply) -> None:
            if not isinstance(reply, Exception) and self._unsettled.get(generation) is unsettled:
                del self._unsettled[generation]

        charged = unsettled.charge
        send_settle(session, unsettled.demand, charged.requests_back, charged.tokens_back, settled)

    def _settle_again(self) -> None:
        now = self._clock.monotonic()
        for generation, unsettled in list(self._unsettled.items()):
            if now - unsettled.sent_at >= _AGAIN_S:
                self._send(generation, unsettled)

    async def _renew(self) -> None:
        groups: dict[tuple[str, str], list[Demand]] = {}
        for held in self._held.values():
            account = self._accounts.get(held.demand.tenant)
            if account is not None:
                account.renew(held.demand, self._now_ms())
            groups.setdefault((held.demand.tenant, held.demand.model), []).append(held.demand)
        lost = 0
        for demands in groups.values():
            for start in range(0, len(demands), _MOST_RENEWED):
                part = [one for one in demands[start : start + _MOST_RENEWED] if one.id in self._held]
                if part:
                    lost += await self._renew_some(part)
        if lost:
            _log.warning("slots_lost", slots=lost)

    async def _renew_some(self, demands: list[Demand]) -> int:
        async def ask(session: Session) -> int:
            return await renew(session, demands, self._lease_ms)

        try:
            return await self._journal.steps(ask)
        except StoreUnavailable:
            # They are taken again with the next renewal, where there is room.
            return 0

    def _account(self, demand: Demand) -> Account:
        account, slots = self._accounts.get(demand.tenant), list[tuple[str, str]]()
        if account is None:
            account = self._accounts[demand.tenant] = Account(self._lease_ms, self._share)
            mine = [held.demand for held in self._held.values() if held.demand.tenant == demand.tenant]
            slots = [(one.id, one.model) for one in mine]
        known = self._levels.get((demand.tenant, demand.model), (Level(), Level()))
        account.start_from(demand, known, slots, self._now_ms())
        return account

    def _remember(self, demand: Demand, verdict: Verdict) -> None:
        key = (demand.tenant, demand.model)
        self._levels[key] = verdict.levels
        self._levels.move_to_end(key)
        while len(self._levels) > _MOST_TENANTS:
            self._levels.popitem(last=False)

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000
