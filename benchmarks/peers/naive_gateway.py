"""What is written in an afternoon: each request goes on to the engine, and the whole answer comes back.

python -m benchmarks.peers.naive_gateway --port 8001 --engine http://127.0.0.1:8000
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

_BODY_LIMIT_BYTES = 64 * 1024 * 1024


def application(engine: str) -> web.Application:
    """Forwards `POST /v1/chat/completions`, without streams, affinity, limits or retries."""
    key = web.AppKey("session", aiohttp.ClientSession)
    app = web.Application(client_max_size=_BODY_LIMIT_BYTES)

    async def session(app: web.Application) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as client:
            app[key] = client
            yield

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        body.pop("stream", None)
        body.pop("stream_options", None)
        async with request.app[key].post(f"{engine}/v1/chat/completions", json=body) as answer:
            return web.json_response(await answer.json(), status=answer.status)

    async def models(request: web.Request) -> web.Response:
        async with request.app[key].get(f"{engine}/v1/models") as answer:
            return web.json_response(await answer.json(), status=answer.status)

    app.cleanup_ctx.append(session)
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", models)
    return app


def main() -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.naive_gateway")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engine", required=True, help="its base URL")
    options = parser.parse_args()
    web.run_app(application(options.engine), host="127.0.0.1", port=options.port, print=None, access_log=None)


if __name__ == "__main__":
    main()
