"""What a mesh consists of: which processes, in which order, with which arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Kind = Literal["cache", "adapter", "router", "edge"]
EngineKind = Literal["llamacpp", "llamacpp_inside", "simulated", "openai_http"]

MODULES: Final[dict[Kind, str]] = {
    "cache": "services.cache",
    "adapter": "services.inference_adapter",
    "router": "services.router",
    "edge": "services.edge",
}
# What their processes import, as far as it starts no thread: numpy, which the cache needs, does.
PRELOADED: Final = [
    "services.edge.app",
    "services.router.app",
    "services.inference_adapter.app",
    "services.inference_adapter.backends.factory",
    "services.cache.settings",
]
# Each stage starts when the one before it is healthy, and drains when the one after it has drained. Cache and adapters need
# nothing of each other.
STAGES: Final[tuple[tuple[Kind, ...], ...]] = (("cache", "adapter"), ("router",), ("edge",))
DRAIN_ORDER: Final[tuple[Kind, ...]] = ("edge", "router", "adapter", "cache")

FIRST_ADAPTER_PORT: Final = 7010
# The first router keeps its own setting, 7001; 7002 is the cache's.
FIRST_FURTHER_ROUTER_PORT: Final = 7101
OPERATIONS_OFFSET: Final = 1000
FIRST_EDGE_OPERATIONS_PORT: Final = 9100


@dataclass(frozen=True, slots=True)
class Engine:
    """What runs the model. `url` is set for openai_http, `model` for llama.cpp."""

    kind: EngineKind
    url: str = ""
    model: Path | None = None

    @property
    def is_llamacpp(self) -> bool:
        """In a process of its own or in the adapter's."""
        return self.kind in ("llamacpp", "llamacpp_inside")

    @property
    def shown(self) -> str:
        """For people."""
        if self.is_llamacpp:
            return f"llama.cpp, {self.model.name if self.model else ''}"
        return self.url or "simulated"


@dataclass(frozen=True, slots=True)
class Process:
    """One service process. `arguments` go on its command line and win over its environment and file."""

    kind: Kind
    index: int
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """As in logs and the ready file, "adapter-0"."""
        return f"{self.kind}-{self.index}"

    @property
    def module(self) -> str:
        """What `python -m` runs."""
        return MODULES[self.kind]


def plan(
    *,
    engine: Engine,
    workers: int,
    edges: int,
    routers: int = 1,
    host: str,
    port: int,
    free_ports: Callable[[int], list[int]],
) -> list[Process]:
    """The service processes in start order. With `port` 0 every process gets ports from `free_ports`.

    Otherwise adapters take 7010 + i, routers beyond the first 7100 + i, and edges share `port`; the first router and the cache
    keep what their own settings say.
    """
    anywhere = port == 0
    pool = iter(free_ports(2 + 2 * routers + 2 * workers + 1 + edges) if anywhere else [])
    cache = Process("cache", 0, _ports(next(pool), next(pool)) if anywhere else ())
    router_processes = [
        Process(
            "router",
            index,
            (
                *(("--id", f"router-{index}") if routers > 1 else ()),
                *(_ports(next(pool), next(pool)) if anywhere else _further_router_ports(index)),
            ),
        )
        for index in range(routers)
    ]
    adapters = [
        Process(
            "adapter",
            index,
            (
                *("--worker", f"adapter-{index}"),
                *_engine_arguments(engine),
                *(
                    _ports(next(pool), next(pool))
                    if anywhere
                    else _ports(FIRST_ADAPTER_PORT + index, FIRST_ADAPTER_PORT + OPERATIONS_OFFSET + index)
                ),
            ),
        )
        for index in range(workers)
    ]
    public = next(pool) if anywhere else port
    edge_processes = [
        Process(
            "edge",
            index,
            (
                *("--id", f"edge-{index}", "--index", str(index), "--host", host),
                *_ports(public, next(pool) if anywhere else FIRST_EDGE_OPERATIONS_PORT + index),
            ),
        )
        for index in range(edges)
    ]
    return [
        cache,
        *adapters,
        *router_processes,
        *edge_processes,
    ]


def _further_router_ports(index: int) -> tuple[str, ...]:
    if index == 0:
        return ()
    port = FIRST_FURTHER_ROUTER_PORT + index - 1
    return _ports(port, port + OPERATIONS_OFFSET)


def _ports(port: int, operations_port: int) -> tuple[str, ...]:
    return ("--port", str(port), "--operations-port", str(operations_port))


def _engine_arguments(engine: Engine) -> tuple[str, ...]:
    """How the adapter is told about its engine."""
    if engine.is_llamacpp:
        return ("--backend", engine.kind, "--model-path", str(engine.model))
    if engine.kind == "openai_http":
        return ("--backend", "openai_http", "--engine-url", engine.url)
    return ("--backend", "simulated")
