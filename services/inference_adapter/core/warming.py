"""What an idle worker computes ahead, and when: KV that requests will want which are not here yet.

            offer                next                      done
    hints ─────────► waiting ───────────► one call under way ─────► warmed ──► a real request hits it, or its time is over
                        ▲                        │ real work
                        └── at most three times ─┘

One call at a time, and after each a pause so long that calls take at most `share` of the time: a call of one token is all
prefill, so it is the same share of the prefill rate.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["system", "session"]
_MOST_TRIES: Final = 3
_MOST_KNOWN: Final = 1024

Name = tuple[str, str, str]
"""Tenant, model, and the session's key or the digest of a system prompt."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """What may be warmed. `name` is what a real request finds it by; `context` see `core/context.py`.

    `grown_at`: when it became what it is; what was in KV before that had less of it.
    """

    kind: Kind
    name: Name
    context: bytes
    grown_at: float = float("-inf")

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.name[0]

    @property
    def model(self) -> str:
        """Which model's KV."""
        return self.name[1]

    @property
    def session(self) -> str:
        """Empty for a system prompt."""
        return self.name[2] if self.kind == "session" else ""


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a worker is: generations in its window, its slots, and the share of its KV in use (0 … 1), where that is known."""

    running: int
    waiting: int
    slots: int
    kv_used: float | None = None

    @property
    def idle_slot(self) -> bool:
        """Nobody waits, and there is room."""
        return not self.waiting and self.running < self.slots

    @property
    def share(self) -> float:
        """Of slots or KV, whichever is more."""
        return max((self.running + self.waiting) / max(1, self.slots), self.kv_used or 0.0)


class Warming:
    """Decides. Times are monotonic seconds of the caller's clock.

    `share` of the time may be spent (0 … 1), while the load is at most `most_load`. What has been warmed, or was used by a real
    request, counts as there for `lives_s`.
    """

    def __init__(self, *, share: float, most_load: float, lives_s: float, most_waiting: int = 64) -> None:
        self._share = share
        self._most_load = most_load
        self._lives_s = lives_s
        self._most_waiting = most_waiting
        self._waiting: OrderedDict[Name, Prefix] = OrderedDict()
        self._tries: dict[Name, int] = {}
        # What is in KV, as far as can be known: since when, and whether it is there by warming alone.
        self._there: OrderedDict[Name, tuple[float, Kind | None]] = OrderedDict()
        self._not_before = float("-inf")

    @property
    def room(self) -> int:
        """How many more may be offered."""
        return self._most_waiting - len(self._waiting)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def offer(self, prefix: Prefix, now: float) -> bool:
        """Takes it, unless it is there already, waits already, or too many do."""
        if self._is_there(prefix, now) or prefix.name in self._waiting or self.room <= 0:
            return False
        self._waiting[prefix.name] = prefix
        return True

    def next(self, load: Load, now: float) -> Prefix | None:
        """What to compute now; it waits no longer. System prompts first: sessions begin with them."""
        if now < self._not_before or not load.idle_slot or load.share > self._most_load:
            return None
        chosen = next((each for each in self._waiting.values() if each.kind == "system"), None)
        if chosen is None:
            chosen = next(iter(self._waiting.values()), None)
        if chosen is not None:
            del self._waiting[chosen.name]
        return chosen

    def done(self, prefix: Prefix, took_s: float, now: float) -> None:
        """It is in KV."""
        self._rest(took_s, now)
        self._tries.pop(prefix.name, None)
        self._note(prefix.name, now, prefix.kind)

    def failed(self, prefix: Prefix, took_s: float, now: float) -> None:
        """The engine will not have it: another try would end the same."""
        self._rest(took_s, now)
        self._tries.pop(prefix.name, None)

    def stopped(self, prefix: Prefix, took_s: float, now: float) -> None:
        """Real work came. It is tried again, unless that has happened too often."""
        self._rest(took_s, now)
        tries = self._tries.pop(prefix.name, 0) + 1
        if tries < _MOST_TRIES and self.room > 0 and not self._is_there(prefix, now):
            self._tries[prefix.name] = tries
            self._waiting[prefix.name] = prefix
            self._waiting.move_to_end(prefix.name, last=False)

    def began(self, name: Name, now: float) -> None:
        """A real request begins with this prefix: it computes itself what is not there, and nobody needs to any more."""
        self._waiting.pop(name, None)
        self._tries.pop(name, None)
        if now - self._there.get(name, (float("-inf"), None))[0] >= self._lives_s:
            self._note(name, now, None)

    def used(self, name: Name, now: float) -> Kind | None:
        """A real request has ended. Not None, once: what it began with had been warmed, and nobody had asked for it since."""
        warmed_at, kind = self._there.get(name, (now, None))
        self._note(name, now, None)
        return kind if now - warmed_at < self._lives_s else None

    def _is_there(self, prefix: Prefix, now: float) -> bool:
        at, _ = self._there.get(prefix.name, (float("-inf"), None))
        return now - at < self._lives_s and at >= prefix.grown_at

    def _note(self, name: Name, now: float, kind: Kind | None) -> None:
        self._there[name] = (now, kind)
        self._there.move_to_end(name)
        if len(self._there) > _MOST_KNOWN:
            self._there.popitem(last=False)

    def _rest(self, took_s: float, now: float) -> None:
        self._not_before = now + took_s * (1 / self._share - 1)
