"""A real browser for a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Page, async_playwright, expect

from tests.support.needs import program

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MS = 30_000
expect.set_options(timeout=MS)


@asynccontextmanager
async def browser_page(*expected: str) -> AsyncIterator[Page]:
    """A page of a fresh browser, on which nothing may fail quietly: what it complains of must have one of `expected` in it."""
    path = program("chromium", "chromium-browser", package="chromium")
    problems: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = await browser.new_page(reduced_motion="reduce")
        page.set_default_timeout(MS)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console",
            lambda said: problems.append(f"{said.text} ({said.location['url']})") if said.type == "error" else None,
        )
        yield page
        await browser.close()
    unexpected = [text for text in problems if not any(part in text for part in expected)]
    assert not unexpected, unexpected
