"""What several llama.cpp on one machine share, and whether two of them get in each other's way.

    python -m benchmarks.shared_weights                 memory of five workers' weights, mapped and as private copies
    python -m benchmarks.shared_weights --pinned        two workers on a core each, against one alone

Weights that are mapped from their file are in memory once: each process's part of them (PSS) is a fifth with five. RSS counts
them five times.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any, Final

from services.inference_adapter.backends.llamacpp_child import configure
from services.inference_adapter.core.fitting import Shape
from services.supervisor.io.model_file import find

MIB: Final = 1024 * 1024
CONTEXT_TOKENS: Final = 256
_READY_S: Final = 120.0


def child(model: str, port: int, private: bool) -> None:
    """One engine, started as the adapter starts it; `private`: it reads its weights into memory of its own."""
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    import xllamacpp

    native: Any = xllamacpp
    shape = Shape(1, CONTEXT_TOKENS, 0)
    settings = configure(native, model=model, name="m", socket="127.0.0.1", threads=1, shape=shape)
    settings.port = port
    if private:
        settings.load_mode = native.llama_load_mode.LLAMA_LOAD_MODE_NONE
    server = native.Server(settings)
    print("ready", flush=True)
    sys.stdin.read()
    del server
    os._exit(0)


class Engine:
    """A child process. `core`: the only one it may use."""

    def __init__(self, model: Path, *, private: bool = False, core: int | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = [sys.executable, "-m", "benchmarks.shared_weights", "--child", str(self.port), "--model", str(model)]
        if core is not None:
            words = ["taskset", "-c", str(core), *words]
        self.process = subprocess.Popen(
            words + ["--private"] * private, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != b"ready":
            raise SystemExit("an engine did not start")

    def memory(self, model: Path) -> dict[str, int]:
        """Bytes of the process, and of the weights' mapping in it, as RSS and as PSS."""
        found = {"rss": 0, "pss": 0, "weights_rss": 0, "weights_pss": 0}
        mapped = False
        for line in Path(f"/proc/{self.process.pid}/smaps").read_text(encoding="utf-8").splitlines():
            name, _, rest = line.partition(" ")
            if name in {"Rss:", "Pss:"}:
                size = int(rest.split()[0]) * 1024
                key = name[:-1].lower()
                found[key] += size
                found[f"weights_{key}"] += size if mapped else 0
            elif not name.endswith(":"):
                mapped = line.endswith(model.name)
        return found

    def answer(self, tokens: int) -> list[float]:
        """When each chunk of an answer of so many tokens came, in seconds."""
        body = {
            "messages": [{"role": "user", "content": "Tell a very long story."}],
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        asked = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=_READY_S) as answer:
            return [time.perf_counter() for line in answer if b'"content":"' in line]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def engines(
    model: Path, count: int, *, private: bool = False, cores: list[int] | None = None
) -> Iterator[list[Engine]]:
    """So many engines, ended afterwards."""
    with ExitStack() as stack:
        made = []
        for index in range(count):
            engine = Engine(model, private=private, core=cores[index] if cores else None)
            stack.callback(engine.close)
            made.append(engine)
        yield made


def weigh(model: Path, count: int) -> None:
    """Prints the table of memory."""
    size = model.stat().st_size
    print(f"{count} workers of {model.name}, {size / MIB:.0f} MiB; MiB of all together")
    print("| weights | RSS | PSS | weights in RSS | weights in PSS | of private copies |")
    print("|---|---|---|---|---|---|")
    beside = 0.0
    for private in (False, True):
        with engines(model, count, private=private) as running:
            for engine in running:
                engine.answer(2)
            each = [engine.memory(model) for engine in running]
        total = {key: sum(one[key] for one in each) / MIB for key in each[0]}
        if private:
            # A copy has no name: it is what the processes have beyond those that map.
            total["weights_rss"] = total["weights_pss"] = total["pss"] - beside
        beside = total["pss"] - total["weights_pss"]
        print(
            f"| {'private' if private else 'mapped'} | {total['rss']:.0f} | {total['pss']:.0f} "
            f"| {total['weights_rss']:.0f} | {total['weights_pss']:.0f} "
            f"| {total['weights_pss'] / (count * size / MIB):.1%} |",
            flush=True,
        )


def pace(running: list[Engine], tokens: int) -> tuple[float, float]:
    """Tokens a second of all together, and the median gap in milliseconds, while all answer at once."""
    times: list[list[float]] = [[] for _ in running]

    def ask(index: int) -> None:
        times[index] = running[index].answer(tokens)

    threads = [Thread(target=ask, args=(index,)) for index in range(len(running))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gaps = [later - before for one in times for before, later in pairwise(one)]
    rate = sum((len(one) - 1) / (one[-1] - one[0]) for one in times)
    return rate, statistics.median(gaps) * 1000


def pinned(model: Path, rounds: int, tokens: int) -> None:
    """Prints the pace of one and of two workers, in turn."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("two cores are needed")
    print(f"cores {cores}, {tokens} tokens, {rounds} rounds; load {os.getloadavg()[0]:.1f}")
    ratios, gaps = [], []
    with engines(model, 2, cores=cores) as running:
        pace(running, 8)
        for _ in range(rounds):
            alone, alone_gap = pace(running[:1], tokens)
            both, both_gap = pace(running, tokens)
            ratios.append(both / alone)
            gaps.append(both_gap / alone_gap)
            print(f"one {alone:.1f} tokens/s, {alone_gap:.1f} ms; two {both:.1f}, {both_gap:.1f} ms", flush=True)
    print(f"two against one: {statistics.median(ratios):.2f} × tokens/s, median gap × {statistics.median(gaps):.2f}")


def main() -> None:
    words = argparse.ArgumentParser(prog="shared_weights")
    words.add_argument("--workers", type=int, default=5)
    words.add_argument("--model", type=Path)
    words.add_argument("--pinned", action="store_true")
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--tokens", type=int, default=96)
    words.add_argument("--child", type=int, help=argparse.SUPPRESS)
    words.add_argument("--private", action="store_true", help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.child:
        child(str(given.model), given.child, given.private)
    elif given.pinned:
        pinned(find(given.model), given.rounds, given.tokens)
    else:
        weigh(find(given.model), given.workers)


if __name__ == "__main__":
    main()
