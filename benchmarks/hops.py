"""What recording a generation costs, in µs of CPU: the rows and spans of all its hops, without the mesh around them.

    python -m benchmarks.hops --generations 20000

The hops of one generation (edge, router, cache lookup, cache, worker, engine call) with the marks and facts they have: traces
off; none, one in a hundred and all sampled. Spans go through the batch processor to an exporter that throws them away:
encoding and sending is not in it. Arms are measured in turn in one process, as CPU time, so what else the machine does counts
little.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from benchmarks.run import RESULTS
from streamway.telemetry.facts import Facts
from streamway.telemetry.hops import Hops
from streamway.telemetry.tracing import Tracer

_ARMS: Final[tuple[float | None, ...]] = (None, 0.0, 0.01, 1.0)
_FACTS: Final = {
    "gen_ai.request.model": "m",
    "gen_ai.conversation.id": "0123456789abcdef",
    "streamway.surface": "websocket",
}
_LATER: Final = {
    "streamway.route": "home",
    "streamway.reason": "first",
    "streamway.cache": "miss",
    "streamway.worker": "adapter-0",
}
_USAGE: Final[Facts] = {
    "gen_ai.usage.input_tokens": 20,
    "gen_ai.usage.output_tokens": 100,
    "gen_ai.response.finish_reasons": ("stop",),
}


class _Nowhere(SpanExporter):
    def __init__(self) -> None:
        self.spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += len(spans)
        return SpanExportResult.SUCCESS


class _Arm:
    """One process's worth of hops. `ratio` None: traces are off."""

    def __init__(self, ratio: float | None) -> None:
        self.exporter = _Nowhere()
        self.costs: list[float] = []
        tracer = None
        if ratio is not None:
            self.provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)))
            self.provider.add_span_processor(BatchSpanProcessor(self.exporter, max_queue_size=65536))
            tracer = Tracer(self.provider, "edge")
        self._hops = Hops("edge", tracer=tracer, ratio=ratio or 0.0)

    def run(self, generations: int) -> None:
        """Notes the CPU time of one, in µs."""
        began = time.process_time()
        for number in range(generations):
            self._one(f"0197a5c2-77f1-7d0a-8c53-{number:012d}")
        self.costs.append((time.process_time() - began) / generations * 1e6)

    def _one(self, generation: str) -> None:
        hops = self._hops
        edge = hops.begin("chat m", hops.context(), generation, kind="server", facts=_FACTS, counted=True)
        router = hops.begin("streamway.open", hops.context(edge.context.traceparent), generation, facts=_FACTS)
        lookup = hops.begin("cache.lookup", hops.context(router.context.traceparent), generation)
        asks = [lookup]
        if lookup.context.sampled and hops.recording:
            asks.append(hops.begin("cache.keyed", hops.context(lookup.context.traceparent), generation))
        for asked in reversed(asks):
            asked.tell({"streamway.cache.outcome": "miss"})
            asked.end("answered")
        router.tell(_LATER)
        router.end("taken")
        edge.mark("accepted")
        edge.tell(_LATER)
        task = hops.begin("process m", hops.context(router.context.traceparent), generation, facts=_FACTS, counted=True)
        call = hops.begin("chat m", hops.context(task.context.traceparent), generation, facts=_FACTS)
        for hop in (call, task, edge):
            hop.mark("first_token")
        edge.mark("started")
        for hop in (call, edge):
            hop.tell(_USAGE)
        for hop in (call, task, edge):
            hop.end("finished")


def main() -> None:
    """Measures, prints a table, writes `results/hops.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hops", description=__doc__)
    parser.add_argument("--generations", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    arms = {ratio: _Arm(ratio) for ratio in _ARMS}
    for repeat in range(options.repeats + 1):
        for arm in arms.values():
            arm.run(options.generations)
            if not repeat:  # the first round warms up
                arm.costs.clear()
    off = arms[None].costs
    rows: list[dict[str, Any]] = []
    print("| traces | µs of CPU a generation | a token of 100 | more than off, a token |\n|---|---|---|---|")
    for ratio, arm in arms.items():
        cost = statistics.median(arm.costs)
        more = statistics.median(mine - base for mine, base in zip(arm.costs, off, strict=True)) / 100
        name = "off" if ratio is None else f"{ratio:.0%} sampled"
        rows.append({"traces": name, "us": cost, "min": min(arm.costs), "max": max(arm.costs), "more_a_token_us": more})
        print(f"| {name} | {cost:.0f} [{min(arm.costs):.0f}–{max(arm.costs):.0f}] | {cost / 100:.2f} | {more:.2f} |")
    (RESULTS / "hops.json").write_text(
        json.dumps({"options": vars(options), "arms": rows}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
