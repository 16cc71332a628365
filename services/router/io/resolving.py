"""Finds out which model a name means now, and asks the next one where nobody can take it."""

from __future__ import annotations

import structlog

from services.router.core.choosing import Chooser, Condition, conditions
from services.router.interfaces import Ask, Opened, Opener
from services.router.io.registry import Registry
from services.router.metrics import RouterMetrics
from streamway.errors import ModelNotFound, NoWorkers, QueueFull, StreamwayError
from streamway.models import ModelRouting
from streamway.models.watching import ModelsWatch
from streamway.runtime.clock import Clock

_log = structlog.get_logger("router")
# Workers report each second; looking more often would show nothing new.
_LOOK_S = 0.5


class Resolving:
    """An opener that gives each request its model, and lets `inner` open it.

    From here on `request.model` is the model, for cache, affinity and worker alike. What was asked for is counted before
    (Admitting, Metering): a tenant's models and limits go by the names it uses.
    """

    def __init__(
        self, inner: Opener, models: ModelsWatch, registry: Registry, clock: Clock, metrics: RouterMetrics
    ) -> None:
        self._inner = inner
        self._models = models
        self._registry = registry
        self._clock = clock
        self._metrics = metrics
        self._choosers: dict[str, Chooser] = {}
        self._looked_at = float("-inf")
        self._looked_by: ModelRouting | None = None

    async def open(self, ask: Ask) -> Opened:
        """Raises what `inner` raises for the first model where no other can take it; ModelNotFound lists the names too."""
        routing, asked = self._models.routing, ask.request.model
        target = routing.target(asked)
        choice = routing.choices.get(target)
        if choice is not None:
            self._look(routing)
        order = routing.in_order(asked, prefer_small=choice is not None and self._choosers[target].prefer_small)
        first: StreamwayError | None = None
        for number, model in enumerate(order):
            ask.request.model = model
            try:
                opened = await self._inner.open(ask)
            except (ModelNotFound, NoWorkers, QueueFull) as refused:
                # That nobody has ever heard of the first says less than why the next can't either.
                if first is None or (isinstance(first, ModelNotFound) and not isinstance(refused, ModelNotFound)):
                    first = refused
                continue
            if number:
                self._metrics.fallbacks.inc()
                _log.info("model_fallback", generation=ask.request.generation, asked=asked, model=model)
            return opened
        ask.request.model = asked
        assert first is not None, "there is at least one model"
        if isinstance(first, ModelNotFound):
            served = {served.name for worker in self._registry.all() for served in worker.models}
            names = served | set(routing.names)
            # Nobody is told of models that are not for it.
            raise ModelNotFound(asked, [name for name in names if ask.tenant is None or ask.tenant.allows(name)])
        raise first

    def _look(self, routing: ModelRouting) -> None:
        now = self._clock.monotonic()
        if routing is self._looked_by and now - self._looked_at < _LOOK_S:
            return
        self._looked_by, self._looked_at = routing, now
        choices = routing.choices
        self._choosers = {name: self._choosers.get(name) or Chooser() for name in choices}
        models = {model for choice in choices.values() for model in (choice.large, choice.small)}
        found = conditions(self._registry.all(), models)
        nobody = Condition()
        for name, choice in choices.items():
            chooser = self._choosers[name]
            before = chooser.prefer_small
            why = chooser.decide(choice, found.get(choice.large, nobody), found.get(choice.small, nobody), now)
            self._metrics.choices.labels(why).inc()
            if chooser.prefer_small != before:
                _log.info("choice_changed", name=name, small=chooser.prefer_small, why=str(why))
