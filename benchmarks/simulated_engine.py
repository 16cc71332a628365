"""The simulated engine as an OpenAI-compatible server.

    python -m benchmarks.simulated_engine --port 8000 --tokens-per-s 20

Every field of `SimulationSettings` is an option; `--faults` takes JSON. `/metrics` tells what runs and what was made.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal

import uvloop
from pydantic import ValidationError

from benchmarks.engine_http import Connections, EngineProtocol, deliver
from streamway.simulation.driver import EngineDriver
from streamway.simulation.engine import SimulatedEngine
from streamway.simulation.settings import SimulationSettings


class EngineServer:
    """The engine on a TCP port (0: a free one) or a unix socket. `address` is known after `start`. A connection without a request
    is closed after `keep_s` seconds, 0 never."""

    def __init__(
        self,
        settings: SimulationSettings,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        uds: str = "",
        keep_s: float = 0.0,
    ) -> None:
        self._settings = settings
        self._where = (host, port, uds)
        self._server: asyncio.Server | None = None
        self._driver: EngineDriver | None = None
        self._connections = Connections(keep_s)
        self.engine = SimulatedEngine(settings)
        self.address = ""

    async def start(self) -> None:
        """Listens."""
        loop = asyncio.get_running_loop()
        driver = self._driver = EngineDriver(self.engine, deliver, self._connections.send)

        def protocol() -> EngineProtocol:
            return EngineProtocol(driver, self._settings, self._connections)

        host, port, uds = self._where
        if uds:
            self._server = await loop.create_unix_server(protocol, uds)
            self.address = f"unix:{uds}"
        else:
            self._server = await loop.create_server(protocol, host, port, backlog=4096)
            self.address = f"http://{host}:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Stops listening and cuts every connection."""
        if self._driver is not None:
            self._driver.close()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # the loop closes the sockets on its next turn


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulated_engine")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: a free one")
    parser.add_argument("--uds", default="", help="listen on this unix socket instead")
    parser.add_argument(
        "--keep-s", type=float, default=0.0, help="close connections that are idle for so long. 0: never"
    )
    for name, field in SimulationSettings.model_fields.items():
        help_text = (field.description or "").replace("%", "%%")
        parser.add_argument(f"--{name.replace('_', '-')}", default=None, help=help_text)
    given = vars(parser.parse_args())
    host, port, uds, keep_s = (given.pop(name) for name in ("host", "port", "uds", "keep_s"))
    values = {name: value for name, value in given.items() if value is not None}
    try:
        if "faults" in values:
            values["faults"] = json.loads(values["faults"])
        settings = SimulationSettings.model_validate(values)
    except (ValidationError, ValueError) as problem:
        parser.error(" ".join(str(problem).split()))

    async def serve() -> None:
        server = EngineServer(settings, host=host, port=port, uds=uds, keep_s=keep_s)
        try:
            await server.start()
        except OSError as problem:
            parser.error(
                f"cannot listen on {uds or f'{host}:{port}'}: {os.strerror(problem.errno or 0)}; choose another"
            )
        print(server.address, flush=True)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()
        await server.close()

    gc.freeze()
    uvloop.run(serve())


if __name__ == "__main__":
    main()
