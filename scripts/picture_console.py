"""Takes docs/console.png: the mesh page of the console, at the moment when a worker has been lost under load."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

import aiohttp
from playwright.async_api import async_playwright, expect

from tests.support.browser import FLAGS
from tests.support.mesh import MeshProcesses
from tests.support.needs import program

_PICTURE: Final = Path(__file__).resolve().parents[1] / "docs" / "console.png"
_MOST_BYTES: Final = 200_000
_STREAMS: Final = 14
_ENVIRONMENT: Final = {
    "STREAMWAY_ADAPTER_SIMULATION": json.dumps({"tokens_per_s": 25, "slots": 8, "model": "qwen3-8b"})
}
_MS: Final = 60_000


async def _stream(session: aiohttp.ClientSession, url: str, number: int) -> None:
    body = {
        "model": "qwen3-8b",
        "messages": [{"role": "user", "content": f"A very long story, number {number}"}],
        "max_tokens": 6000,
        "stream": True,
    }
    async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
        async for _ in answer.content:
            pass


async def _take(mesh: MeshProcesses) -> None:
    path = program("chromium", "chromium-browser", package="chromium")
    # Each on a connection of its own, so that both edges have some.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session, async_playwright() as playwright:
        streams = [asyncio.ensure_future(_stream(session, mesh.edge_url, number)) for number in range(_STREAMS)]  # noqa: TID251
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = await browser.new_page(viewport={"width": 1180, "height": 760}, locale="en-GB")
        await page.goto(f"{mesh.edge_url}/mesh.html")
        await expect(page.locator(".dot-stream")).to_have_count(_STREAMS, timeout=_MS)
        await expect(page.locator(".rate").first).to_contain_text("tokens/s", timeout=_MS)
        # Stopped and not killed: the supervisor would have it back before the picture is taken.
        mesh.kill("adapter-1", signal.SIGSTOP)
        await expect(page.locator(".box.gone")).to_have_count(1, timeout=_MS)
        await expect(page.locator("#happened")).to_contain_text("moved from adapter-1", timeout=_MS)
        # Two looks later the rates are those of the streams where they are now.
        await page.wait_for_timeout(2500)
        # Its name is in a script that this machine may have no font for.
        await page.evaluate("document.getElementById('language').style.visibility = 'hidden'")
        await page.screenshot(path=_PICTURE, clip={"x": 0, "y": 0, "width": 1180, "height": 760})
        mesh.kill("adapter-1", signal.SIGCONT)
        await browser.close()
        for stream in streams:
            stream.cancel()
        await asyncio.wait(streams)


def main() -> int:
    """Returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="streamway-picture-") as folder:
        mesh = MeshProcesses(Path(folder), arguments=("--workers", "3", "--edges", "2"), environment=_ENVIRONMENT)
        try:
            asyncio.run(_take(mesh))
        finally:
            mesh.close()
    size = _PICTURE.stat().st_size
    print(f"{_PICTURE.name}: {size} bytes")
    if size > _MOST_BYTES:
        print(f"more than {_MOST_BYTES}: too large for the README", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
