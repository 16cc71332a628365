"""The operations port: `/healthz`, `/readyz`, `/metrics`, `/debug/generations`, on loopback unless configured otherwise."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from streamway.runtime.address import host_port
from streamway.runtime.start import StartError
from streamway.telemetry.hops import Hops

# A scrape that runs while the process closes may take this long to end.
_CLOSE_S: Final = 1.0
_MOST_SHOWN: Final = 100
# For so long metrics are written at a time: no token moves meanwhile.
_SLICE_S: Final = 0.0005


class OperationsServer:
    """Serves the health and metrics of one process.

    `hops` is what it shows of single generations: ids, times and names of the mesh, no texts.
    `ready` returns an empty string when the process takes work, otherwise what it waits for. `port` 0 takes a free one;
    `address` tells which after `start`.
    """

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, ready: Callable[[], str], hops: Hops | None = None
    ) -> None:
        self._host = host
        self._port = port
        self._registry = registry
        self._ready = ready
        self._hops = hops if hops is not None else Hops("")
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        """Where it listens, "host:port"."""
        return host_port(self._host, self._port)

    async def start(self) -> None:
        """Listens. Raises StartError when the port is taken."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/debug/generations", self._newest)
        app.router.add_get("/debug/generations/{id}", self._generation)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CLOSE_S)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as problem:
            await self.close()
            raise StartError(
                f"operations port {self.address} is not free ({problem.strerror}); set another operations_port"
            ) from None
        self._port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stops listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        waiting = self._ready()
        return web.Response(text=f"{waiting or 'ready'}\n", status=503 if waiting else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        encoder, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=await encoded(self._registry, encoder), headers={"Content-Type": content_type})

    async def _newest(self, _: web.Request) -> web.Response:
        return web.json_response({"hops": [hop.row() for hop in self._hops.newest(_MOST_SHOWN)]})

    async def _generation(self, request: web.Request) -> web.Response:
        return web.json_response({"hops": [hop.row() for hop in self._hops.of(request.match_info["id"])]})


class _Some(Collector):
    """A part of what a registry collects."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


async def encoded(registry: CollectorRegistry, encoder: Callable[[Collector], bytes]) -> bytes:
    """All metrics as `encoder` writes them, one after the other, with other work in between: it takes milliseconds."""
    # OpenMetrics ends with a line of its own.
    parts, end, began = [], encoder(_Some()), time.perf_counter()
    for metric in registry.collect():
        parts.append(encoder(_Some(metric)).removesuffix(end))
        if time.perf_counter() - began > _SLICE_S:
            await asyncio.sleep(0)
            began = time.perf_counter()
    return b"".join(parts) + end
