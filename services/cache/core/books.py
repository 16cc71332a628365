"""What is kept of each tenant to be told: its account, whether its semantic level pays, what that did lately."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from services.cache.core.savings import Account, Amount, Credit, Debit, Prices
from services.cache.core.semantic.history import History
from services.cache.core.semantic.switch import Switch, Terms
from streamway.models.prices import Price
from streamway.runtime.recent import Recent
from streamway.v1 import cache_pb2

# Tenants beyond so many begin anew when they come back.
_MOST_TENANTS: Final = 4096
_LEVELS: Final[dict[cache_pb2.CacheOutcome.ValueType, Credit]] = {
    cache_pb2.CACHE_OUTCOME_HIT_EXACT: "exact",
    cache_pb2.CACHE_OUTCOME_HIT_FOLDED: "folded",
    cache_pb2.CACHE_OUTCOME_HIT_SEMANTIC: "semantic",
}


class TenantBook:
    """One tenant's. `adopted`: what was kept of it before this process is in it, or there was nothing."""

    def __init__(self, switch: Switch) -> None:
        self.adopted = False
        self.switch = switch
        self.account = Account(switch.posted)
        self.history = History()


class Books:
    """Postings go to the tenant's account and to the sum of all.

    `answer_of` gives an entry's answer; None for one that has gone. `prices_of_models` are those that count now; any other model
    is priced by `prices`.
    """

    def __init__(
        self,
        prices: Prices,
        terms: Terms,
        answer_of: Callable[[str, str], cache_pb2.CachedAnswer | None],
        prices_of_models: Callable[[], Mapping[str, Price]] = dict,
        *,
        enforced: bool = True,
    ) -> None:
        self.prices = prices
        self._answer_of = answer_of
        self._prices_of_models = prices_of_models
        self.total = Account()
        self._terms = terms
        self._enforced = enforced
        self._tenants: Recent[str, TenantBook] = Recent(_MOST_TENANTS)
        # Tenants in whose book something was written since it was saved.
        self.changed: set[str] = set()

    def of(self, tenant: str) -> TenantBook:
        """A tenant's, to write in."""
        if len(self.changed) < _MOST_TENANTS:
            self.changed.add(tenant)
        return self.entry(tenant)

    def entry(self, tenant: str) -> TenantBook:
        """A tenant's; an empty one for one that was never here."""
        return self._tenants.get(tenant) or self._tenants.put(
            tenant, TenantBook(Switch(self._terms, enforced=self._enforced))
        )

    def known(self, tenant: str) -> TenantBook | None:
        """A tenant's, if it was here."""
        return self._tenants.get(tenant)

    def replied(self, tenant: str, response: cache_pb2.LookupResponse) -> None:
        """A lookup came to its end; notes in an answer what it saved."""
        level = _LEVELS.get(response.outcome)
        if level is not None:
            worth = self.worth(response.answer)
            response.answer.saved_money = worth.money
            self._credit(tenant, level, worth)

    def audited(self, tenant: str, entry: str) -> None:
        """An entry would have answered; a worker does it all the same."""
        answer = self._answer_of(tenant, entry)
        if answer is not None:
            worth = self.worth(answer)
            self._credit(tenant, "semantic", worth)
            self._debit(tenant, "audits", worth)

    def wrong(self, tenant: str, entry: str, times: float) -> None:
        """An entry's answer was wrong, and stands for `times` such answers that were given."""
        answer = self._answer_of(tenant, entry)
        if answer is not None and times > 0:
            self._debit(tenant, "wrong", self.worth(answer).times(times * self.prices.wrong_factor))

    def worked(self, tenant: str, what: Debit, seconds: float) -> None:
        """The encoder or the verifier worked so long."""
        self._debit(tenant, what, Amount(0, seconds * self.prices.second, seconds))

    def worth(self, answer: cache_pb2.CachedAnswer) -> Amount:
        """What an engine would do for it. Its time is that of its last event, where offsets were kept with them."""
        usage = answer.usage
        seconds = answer.events[-1].offset_ms / 1000 if answer.events else 0.0
        price = self._prices_of_models().get(answer.model, self.prices.tokens)
        return Amount(usage.prompt_tokens + usage.completion_tokens, price.of(usage), seconds)

    def _credit(self, tenant: str, level: Credit, amount: Amount) -> None:
        self.of(tenant).account.credit(level, amount)
        self.total.credit(level, amount)

    def _debit(self, tenant: str, what: Debit, amount: Amount) -> None:
        self.of(tenant).account.debit(what, amount)
        self.total.debit(what, amount)
