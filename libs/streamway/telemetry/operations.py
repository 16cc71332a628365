"""The operations port: `/healthz`, `/readyz`, `/metrics`, on loopback unless configured otherwise."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from streamway.runtime.process import StartError


class OperationsServer:
    """Serves the health and metrics of one process.

    `ready` returns an empty string when the process takes work, otherwise what it waits for.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry, ready: Callable[[], str]) -> None:
        self._host = host
        self._port = port
        self._registry = registry
        self._ready = ready
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listens. Raises StartError when the port is taken."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as problem:
            await self.close()
            raise StartError(
                f"operations port {self._host}:{self._port} is not free ({problem.strerror}); set another operations_port"
            ) from None

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
        return web.Response(body=encoder(self._registry), headers={"Content-Type": content_type})
