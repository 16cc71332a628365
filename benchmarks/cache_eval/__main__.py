"""What the cache's levels serve, and how often wrongly, beside GPTCache and RedisVL: `make cache-eval`.

Sources, protocol, and what the tables mean: docs/cache-eval.md.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# As the cache does it, before numpy is imported: verifiers are small, and several processes run beside one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.cache_eval import made, plots, traffic
from benchmarks.cache_eval.conversations import report_conversations
from benchmarks.cache_eval.data import Asked, DataSet, from_folder, from_package, is_reported
from benchmarks.cache_eval.encoder import Encoded
from benchmarks.cache_eval.figures import Progress, Rate, table
from benchmarks.cache_eval.pairs import answered, report_pairs
from benchmarks.cache_eval.peers import Asking, Peers
from benchmarks.cache_eval.rules import nearest, report_rules
from benchmarks.cache_eval.shifts import shifted
from benchmarks.cache_eval.streams import POLICIES, Run, run_all

_BUILD = Path(__file__).parents[2] / ".build" / "cache-eval"
_PAIRS_OF_PEERS = 150
_POINTS = (250, 500, 1000, 2000, 4000)


class Evaluation:
    """One run of it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._encoded = Encoded(load_encoder(arguments.encoder), arguments.encoder, _BUILD)
        self._peers = None if arguments.no_peers else Peers(_BUILD / "others", arguments.peers_most_s)
        self._orders = arguments.orders
        self._policies: list[str] = [
            each.name for each in POLICIES if not arguments.policies or each.name in arguments.policies
        ]
        self._plan: list[Callable[[], None]] = []
        self._requests = 0
        self._progress: Progress | None = None
        self._asked_of_peers = Asking()
        self._plots: Path | None = arguments.plots
        print(f"encoder: {self._encoded.name}; thresholds are cosine similarities\n")

    def run(self) -> None:
        """Prints what was planned. Other caches are started once, for all of it; how far it is goes to stderr."""
        began = time.monotonic()
        self._asked_of_peers.answers = self._peers.run(self._encoded, self._asked_of_peers) if self._peers else {}
        for each in self._asked_of_peers.answers.values():
            print(each.about)
        print()
        self._progress = Progress("policies", "requests", self._requests)
        for step in self._plan:
            step()
            sys.stdout.flush()
        print(f"{time.monotonic() - began:.0f} s in all", file=sys.stderr)

    def pairs(self, source: DataSet) -> None:
        """Tables and a picture of a set of pairs."""
        reported = [pair for pair in source.pairs if is_reported(pair.id)]
        # Each pair is a cache of its own with files of its own: all of them take other caches longer than everything else.
        place = self._asked_of_peers.add_pairs(reported[:: -(-len(reported) // _PAIRS_OF_PEERS) or 1])
        self._plan.append(lambda: self._pairs(source, self._asked_of_peers.pairs_of(place)))

    def _pairs(self, source: DataSet, others: dict[str, dict[str, bool]]) -> None:
        shown = report_pairs(
            *(source.name, source.pairs, self._encoded, others),
        )
        if self._plots is not None and shown:
            points = {}
            for name, served in others.items():
                good, bad = answered(shown, served)
                points[name] = (bad.percent, good.percent)
            plots.plot_pairs(shown, points, source.name, self._plots / f"cache-eval-pairs-{source.name}.png")

    def stream(self, name: str, said: str, orders: Sequence[Sequence[Asked]], skip: int = 0) -> None:
        """Tables and pictures of a stream in one or several orders, without the first `skip` requests."""
        place = self._asked_of_peers.add_stream(orders[0])
        self._requests += len(self._policies) * sum(map(len, orders))
        self._plan.append(lambda: self._stream(name, said, orders, skip, place))

    def _stream(self, name: str, said: str, orders: Sequence[Sequence[Asked]], skip: int, place: int) -> None:
        assert self._progress is not None
        runs = run_all(orders, self._encoded.of, skip, self._policies, self._progress.done)
        runs |= {peer: [run.after(skip)] for peer, run in self._asked_of_peers.stream_of(place).items()}
        print(f"## {name}: {said}; {len(orders)} orders (others: the first)\n")
        lengths = sorted(len(each.text) for each in orders[0][skip:])
        print(f"length: {lengths[len(lengths) // 2]} characters in the median; hits / wrong, % of requests so far\n")
        shortest = min(map(len, orders)) - skip
        points = [point for point in _POINTS if point < shortest]
        head = [
            "policy",
            *(f"after {point}" for point in points),
            "hits",
            "wrong (95 % interval)",
            "right of hits",
            "compared",
            "threshold",
        ]
        table(head, [_row(policy, each, points) for policy, each in runs.items()])
        report_rules(name, nearest(orders[0], self._encoded.of([each.text for each in orders[0]])))
        if self._plots is not None:
            slug = name.replace(" ", "-")
            plots.plot_time(runs, f"{name}: {said}", self._plots / f"cache-eval-{slug}.png")
            plots.plot_precision(runs, name, self._plots / f"cache-eval-{slug}-precision.png")

    def traffic(self, made_traffic: list[traffic.Traffic], before: Sequence[Asked] = ()) -> None:
        """A stream whose shares are known, after other questions or none."""
        first = made_traffic[0]
        said = f"{first.said}, after {len(before)} of other questions" if before else first.said
        self.stream(first.name, said, [[*before, *each.asked] for each in made_traffic], len(before))

    def no_repeats(self, name: str, every: Sequence[made.Question]) -> None:
        """Streams in which each hit is wrong: in any words, and where there are several wordings in the most similar ones."""
        seeds = range(1, self._orders + 1)
        self.traffic([traffic.without_repeats(f"no repeats {name}", every, seed, alike=False) for seed in seeds])
        if any(len(question.wordings) > 2 for question in every):
            alike = f"no repeats, same words {name}"
            self.traffic([traffic.without_repeats(alike, every, seed, alike=True) for seed in seeds])

    def orders(self, stream: Sequence[Asked]) -> list[list[Asked]]:
        """A stream in random orders."""
        return [random.Random(seed).sample(stream, len(stream)) for seed in range(1, self._orders + 1)]

    def all(self, source: DataSet) -> None:
        """Everything that a source has data for."""
        if source.pairs:
            self.pairs(source)
            reported = [pair for pair in source.pairs if is_reported(pair.id)]
            self.traffic(
                [traffic.of_pairs(f"traffic {source.name}", reported, seed) for seed in range(1, self._orders + 1)]
            )
            self.no_repeats(source.name, traffic.questions_of(reported))
        self._plan.append(lambda: report_conversations(source.name, source.conversations, self._encoded))
        if source.stream:
            self.stream(f"{source.name} random", f"{len(source.stream)} requests", self.orders(source.stream))
            # One order; what is compared is drawn anew each time.
            said = f"{len(source.stream)} requests, as they came"
            self.stream(f"{source.name} in time", said, [source.stream] * self._orders)
            for said, orders in shifted(source.stream, self._orders).items():
                self.stream(f"{source.name} {said}", f"{len(source.stream)} requests", orders)

    def made(self, language: str) -> None:
        """What is made by rule."""
        self.pairs(DataSet(f"made-{language}", made.pairs(language), [], []))
        seeds = range(1, self._orders + 1)
        held_out = made.held_out(language)
        self.traffic([traffic.fixed(f"traffic made {language}", held_out, seed) for seed in seeds])
        before = traffic.fixed("before", [q for q in made.questions(language) if q not in held_out], 1).asked
        self.traffic([traffic.fixed(f"learned traffic made {language}", held_out, seed) for seed in seeds], before)
        self.no_repeats(f"made {language}", made.questions(language))


def main() -> None:
    """Prints everything that was asked for."""
    arguments = _arguments()
    evaluation = Evaluation(arguments)
    if arguments.plots is not None:
        arguments.plots.mkdir(parents=True, exist_ok=True)
    if "package" in arguments.only:
        evaluation.all(from_package())
    for language in ("en", "zh"):
        if f"made-{language}" in arguments.only:
            evaluation.made(language)
    for source in from_folder(arguments.data) if arguments.data is not None and "data" in arguments.only else []:
        evaluation.all(source)
    evaluation.run()


def load_encoder(name: str) -> Any:
    """Something with `encode(list[str]) -> float32[n, d]`, unit length: made by calling `module:factory`."""
    module, _, factory = name.partition(":")
    return getattr(importlib.import_module(module), factory)()


def _row(policy: str, runs: Sequence[Run], points: Sequence[int]) -> list[object]:
    requests = sum(len(run.hits) for run in runs)
    hits, wrong = sum(sum(run.hits) for run in runs), sum(sum(run.wrong) for run in runs)
    early = [
        f"{_mean([sum(run.hits[:at]) / at for run in runs]):.1f} / {_mean([sum(run.wrong[:at]) / at for run in runs]):.2f}"
        for at in points
    ]
    last = sorted(run.threshold[-1] for run in runs)[len(runs) // 2]
    labels = sum(run.labels for run in runs) // len(runs)
    right = f"{100 * (hits - wrong) / hits:.1f}" if hits else "–"
    return [
        policy,
        *early,
        f"{100 * hits / requests:.1f}",
        Rate(wrong, requests, len(runs)),
        right,
        labels,
        f"{last:.3f}" if last else "–",
    ]


def _mean(shares: Sequence[float]) -> float:
    return 100 * sum(shares) / len(shares)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with data sets beside those that come with the command")
    parser.add_argument("--encoder", default="benchmarks.cache_eval.encoder:Multilingual", help="module:factory")
    parser.add_argument("--orders", type=int, default=3, help="random orders of a stream")
    parser.add_argument("--policies", nargs="+", choices=[each.name for each in POLICIES], help="of them, in streams")
    parser.add_argument("--no-peers", action="store_true", help="without GPTCache and RedisVL")
    parser.add_argument("--peers-most-s", type=float, default=900, help="seconds that they may take together")
    parser.add_argument("--plots", type=Path, help="folder for pictures")
    parser.add_argument("--only", nargs="+", default=["package", "made-en", "made-zh", "data"], help="parts of it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
