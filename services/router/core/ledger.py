"""What this router has in flight, and what that says of a worker's load between two of its reports.

A report is up to a second old, a look at the lanes up to half a second. What was dispatched since is added, what ended since
is taken off, so that a burst between two reports spreads as if the reports were fresh.

    report at R                      now
    ──┬──────────┬─────────┬──────────
      │ reported │ a ends  │ b added        load = reported − a + b, and never less than our own tokens in flight

A report that has not been renewed for too long says nothing any more. `stale` tells; who asks decides what to assume then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.router.core.queues import NO_TASKS, Lanes
from services.router.core.worker import Worker
from streamway.valkey.keys import CLASSES, TaskClass

_RATE_MEMORY = 0.8  # weight of the past in the drain rate, per look
# A report is at most so old when it is first seen, if the worker's clock is right; else its time is told by ours.
_SYNCHRONOUS_MS = 2_000.0


@dataclass(slots=True)
class Entry:
    """One generation in flight."""

    worker: str
    tokens: int
    at_ms: float
    lane: int  # its place in `CLASSES`


@dataclass(slots=True)
class _Account:
    live: dict[str, Entry] = field(default_factory=dict)
    tokens: int = 0
    tasks: list[int] = field(default_factory=lambda: [*NO_TASKS])  # live ones of each lane
    # Against the last report: dispatched since and still live; counted in it and ended since.
    said_ms: float = -1.0  # by the worker's clock, as it says; below 0: nothing yet
    reported_ms: float = 0.0  # by ours
    first_seen_ms: float = 0.0
    stale: bool = False
    tokens_since: int = 0
    tokens_ended: int = 0
    # The same against the last look at the lanes, in tasks of each.
    polled_ms: float = 0.0
    tasks_since: list[int] = field(default_factory=lambda: [*NO_TASKS])
    tasks_ended: list[int] = field(default_factory=lambda: [*NO_TASKS])
    ended: int = 0
    urgent: int = 0  # urgent ones placed that no end has made room for since
    rate_per_s: float = 0.0


class Ledger:
    """The generations this router dispatched and whose end it has not seen. Times are Unix milliseconds.

    `stale_ms`: so long after a worker's newest report was first seen it is stale.
    """

    def __init__(self, stale_ms: float = 5_000.0) -> None:
        self._stale_ms = stale_ms
        self._accounts: dict[str, _Account] = {}
        self._entries: dict[str, Entry] = {}
        self._changed: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, generation: str) -> bool:
        return generation in self._entries

    def add(self, generation: str, worker: str, tokens: int, now_ms: float, lane: TaskClass = "gold") -> None:
        """Notes a dispatch."""
        entry = Entry(worker, tokens, now_ms, CLASSES.index(lane))
        account = self._accounts.setdefault(worker, _Account())
        account.live[generation] = self._entries[generation] = entry
        account.tokens += tokens
        account.tokens_since += tokens
        account.tasks[entry.lane] += 1
        account.tasks_since[entry.lane] += 1
        account.urgent += lane == CLASSES[0]
        self._changed.add(worker)

    def settle(self, generation: str) -> bool:
        """Notes an end; False when it was settled before."""
        entry = self._entries.pop(generation, None)
        if entry is None:
            return False
        self._changed.add(entry.worker)
        account = self._accounts[entry.worker]
        del account.live[generation]
        account.tokens -= entry.tokens
        account.tasks[entry.lane] -= 1
        account.ended += 1
        account.urgent = max(0, account.urgent - 1)
        if entry.at_ms < account.reported_ms:
            account.tokens_ended += entry.tokens
        else:
            account.tokens_since -= entry.tokens
        if entry.at_ms < account.polled_ms:
            account.tasks_ended[entry.lane] += 1
        else:
            account.tasks_since[entry.lane] -= 1
        return True

    def seen(self, worker: Worker) -> None:
        """Takes a new look at a worker: its report and its lanes."""
        account = self._accounts.setdefault(worker.id, _Account())
        if worker.polled_ms < account.polled_ms:
            # Our clock went back. What is live was dispatched before this look, whatever its time says.
            for entry in account.live.values():
                entry.at_ms = min(entry.at_ms, worker.polled_ms - 1)
        if worker.reported_ms != account.said_ms:
            account.said_ms, account.first_seen_ms, account.stale = worker.reported_ms, worker.polled_ms, False
            on_time = 0 <= worker.polled_ms - worker.reported_ms <= _SYNCHRONOUS_MS
            account.reported_ms = worker.reported_ms if on_time else worker.polled_ms
            account.tokens_ended = 0
            account.tokens_since = sum(entry.tokens for entry in _newest(account, account.reported_ms))
        if worker.polled_ms != account.polled_ms:
            if 0 < account.polled_ms < worker.polled_ms:
                rate = account.ended / (worker.polled_ms - account.polled_ms) * 1000
                account.rate_per_s = _RATE_MEMORY * account.rate_per_s + (1 - _RATE_MEMORY) * rate
            account.polled_ms, account.tasks_ended, account.ended = worker.polled_ms, [*NO_TASKS], 0
            account.tasks_since = [*NO_TASKS]
            for entry in _newest(account, worker.polled_ms):
                account.tasks_since[entry.lane] += 1

    def age(self, now_ms: float) -> None:
        """Time has passed: finds the reports that have become stale."""
        for account in self._accounts.values():
            account.stale = account.said_ms >= 0 and now_ms - account.first_seen_ms > self._stale_ms

    def stale(self, worker: str) -> bool:
        """Its newest report is too old to count."""
        account = self._accounts.get(worker)
        return account is not None and account.stale

    def report_age_ms(self, now_ms: float) -> float:
        """How long ago the oldest of the newest reports was first seen; 0 without any."""
        return max((now_ms - one.first_seen_ms for one in self._accounts.values() if one.said_ms >= 0), default=0.0)

    def take_changed(self) -> set[str]:
        """Workers whose load has changed by what was dispatched or has ended since this was asked last."""
        changed, self._changed = self._changed, set()
        return changed

    def own(self, worker: str) -> int:
        """Tokens that this router has in flight there."""
        account = self._accounts.get(worker)
        return account.tokens if account is not None else 0

    def keep_only(self, workers: set[str]) -> None:
        """Forgets workers that are gone and have nothing in flight here."""
        for id_ in [id_ for id_, account in self._accounts.items() if id_ not in workers and not account.live]:
            del self._accounts[id_]

    def load(self, worker: Worker) -> int:
        """Its tokens in flight, as far as its newest report and our own books say."""
        account = self._accounts.get(worker.id)
        if account is None:
            return worker.load_tokens
        return max(account.tokens, worker.load_tokens - account.tokens_ended + account.tokens_since)

    def urgent(self, worker: str) -> int:
        """Urgent tasks that were placed there lately, each less one for whatever has ended since: while all slots are in use, so
        many of those that the worker keeps ahead are taken."""
        account = self._accounts.get(worker)
        return account.urgent if account is not None else 0

    def tasks(self, worker: Worker) -> int:
        """Its tasks: in its lanes, waiting in its window, running."""
        return sum(self.lanes(worker))

    def lanes(self, worker: Worker) -> Lanes:
        """The same for each kind of lane."""
        account = self._accounts.get(worker.id)
        if account is None:
            return worker.lanes
        gold, silver, bronze, bulk = (
            max(live, polled - ended + since)
            for live, polled, ended, since in zip(
                account.tasks, worker.lanes, account.tasks_ended, account.tasks_since, strict=True
            )
        )
        return gold, silver, bronze, bulk

    def rate(self, workers: list[str]) -> float:
        """Ends a second on these workers together, lately."""
        return sum(self._accounts[id_].rate_per_s for id_ in workers if id_ in self._accounts)


def _newest(account: _Account, since_ms: float) -> list[Entry]:
    """Live entries dispatched at `since_ms` or later. The dict keeps their order, so only those are looked at."""
    found: list[Entry] = []
    for entry in reversed(account.live.values()):
        if entry.at_ms < since_ms:
            break
        found.append(entry)
    return found
