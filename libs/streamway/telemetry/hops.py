"""What this process did for each generation of late: a bounded table, and the spans of those that are recorded.

    hop = hops.begin("chat m", context, generation, kind="server", facts={…})
    hop.mark("first_token")          # at this moment
    hop.tell({…})                    # what has become known of it
    hop.end("finished")              # "finished", "cancelled", "left", … or the reason of an error; once, later ones are ignored

Nothing here is called for each token. Without a tracer, and for what is not sampled, a hop is what it was told, kept as it came:
rows are made of it when somebody asks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from streamway.telemetry.context import RequestContext, begin
from streamway.telemetry.facts import Facts
from streamway.telemetry.tracing import Kind, Recorded, Tracer

# Ends that are no faults; every other one is the reason of an error.
ENDS: Final = frozenset({"finished", "cancelled", "left", "taken", "moved", "handed_over", "answered", "stopped"})
# Upper bounds in seconds of the ages that are told apart, and their labels.
AGES: Final = ((1.0, "1s"), (10.0, "10s"), (60.0, "1m"), (300.0, "5m"), (1800.0, "30m"), (float("inf"), "older"))
_MOST_MARKS: Final = 32
_MOST_TOLD: Final = 32


class Hop:
    """One thing that this process did for one generation. `began` and the times of `marks` are seconds since the Unix epoch."""

    __slots__ = (
        "_hops",
        "_recorded",
        "_told",
        "began",
        "context",
        "counted",
        "ended",
        "generation",
        "marks",
        "name",
        "outcome",
    )

    def __init__(
        self,
        hops: Hops,
        name: str,
        context: RequestContext,
        generation: str,
        facts: Facts,
        recorded: Recorded | None,
        *,
        counted: bool,
    ) -> None:
        self._hops = hops
        self._recorded = recorded
        self.name = name
        self.context = context
        self.generation = generation
        self._told: list[Facts] = [facts]
        self.counted = counted
        self.began = hops.unix()
        self.ended = 0.0
        self.outcome = ""
        self.marks: list[tuple[str, float]] = []

    @property
    def facts(self) -> dict[str, Any]:
        """What it was told until now."""
        return {name: value for facts in self._told for name, value in facts.items()}

    @property
    def exemplar(self) -> dict[str, str] | None:
        """What a metric says of it beside a value; None where its trace is not recorded."""
        return {"trace_id": self.context.trace_id} if self._recorded is not None else None

    def mark(self, name: str) -> None:
        """Something happened now. Beyond 32 of them nothing is kept."""
        if self.outcome or len(self.marks) >= _MOST_MARKS:
            return
        self.marks.append((name, self._hops.unix()))
        if self._recorded is not None:
            self._recorded.mark(name)

    def tell(self, facts: Facts) -> None:
        """Values as in spans: no texts of people. `facts` is kept, so it is not changed afterwards."""
        if self.outcome:
            return
        if len(self._told) >= _MOST_TOLD:
            self._told = [self.facts]
        self._told.append(facts)
        if self._recorded is not None:
            self._recorded.tell(facts)

    def link(self, traceparent: str) -> None:
        """It goes on with something of another trace, or of another process."""
        if self._recorded is not None and not self.outcome:
            self._recorded.link(traceparent)

    def end(self, outcome: str) -> None:
        """It is over."""
        if self.outcome:
            return
        self.outcome, self.ended = outcome, self._hops.unix()
        self._hops.over(self)
        recorded, self._recorded = self._recorded, None
        if recorded is None:
            return
        recorded.mark("terminal", {"streamway.outcome": outcome})
        recorded.tell({"streamway.outcome": outcome})
        if outcome not in ENDS:
            recorded.fail(outcome)
        recorded.end()

    def row(self) -> dict[str, Any]:
        """As JSON. Times in milliseconds since the Unix epoch; 0: not yet."""
        return {
            "service": self._hops.service,
            "process": self._hops.process,
            "name": self.name,
            "generation": self.generation,
            "trace": self.context.trace_id,
            "span": self.context.span_id,
            "parent": self.context.parent,
            "sampled": self.context.sampled,
            "began_ms": round(self.began * 1000, 3),
            "marks": [[name, round(at * 1000, 3)] for name, at in self.marks],
            "ended_ms": round(self.ended * 1000, 3),
            "outcome": self.outcome,
            "facts": self.facts,
        }


class Hops:
    """All of one process. `process` is its name in the mesh; of the newest `most` hops the rows are kept.

    `ratio`: the share of the traces that begin here to be recorded; without a tracer none is.
    """

    def __init__(
        self,
        service: str,
        process: str = "",
        tracer: Tracer | None = None,
        *,
        ratio: float = 1.0,
        most: int = 2000,
        unix: Callable[[], float] = time.time,
    ) -> None:
        self.service = service
        self.process = process or service
        self.ratio = ratio if tracer is not None else 0.0
        self.unix = unix
        self._tracer = tracer
        self._rows: deque[Hop] = deque(maxlen=most)
        self._live: set[Hop] = set()

    def __len__(self) -> int:
        """Rows in the table."""
        return len(self._rows)

    @property
    def recording(self) -> bool:
        """Spans of sampled traces are recorded."""
        return self._tracer is not None

    def context(self, traceparent: str = "", **known: str) -> RequestContext:
        """This hop's context: of the sender's trace, or of a new one."""
        return begin(traceparent, sampled=self.ratio, **known)

    def begin(
        self,
        name: str,
        context: RequestContext,
        generation: str,
        *,
        kind: Kind = "internal",
        facts: Facts | None = None,
        links: Sequence[str] = (),
        counted: bool = False,
    ) -> Hop:
        """`counted`: it is a generation that is in flight here; see `ages`."""
        recorded = None
        if self._tracer is not None and context.sampled:
            told = {"gen_ai.response.id": generation, **(facts or {})}
            recorded = self._tracer.span(name, context, kind, told, links)
        hop = Hop(self, name, context, generation, facts or {}, recorded, counted=counted)
        self._live.add(hop)
        self._rows.append(hop)
        return hop

    def of(self, generation: str) -> list[Hop]:
        """What is kept of a generation, oldest first. Looks at all rows: people ask, and they are few."""
        return [hop for hop in self._rows if hop.generation == generation]

    def newest(self, most: int) -> Iterator[Hop]:
        """The newest ones, newest first."""
        for number, hop in enumerate(reversed(self._rows)):
            if number >= most:
                return
            yield hop

    def ages(self) -> dict[str, int]:
        """How many generations are in flight, by age."""
        found = dict.fromkeys((label for _, label in AGES), 0)
        now = self.unix()
        for hop in self._live:
            if hop.counted:
                age_s = now - hop.began
                found[next(label for bound, label in AGES if age_s < bound)] += 1
        return found

    def over(self, hop: Hop) -> None:
        """It has ended."""
        self._live.discard(hop)

    def close(self) -> None:
        """The process ends: so does everything here."""
        for hop in list(self._live):
            hop.end("stopped")
