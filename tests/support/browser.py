"""A real browser for a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

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


# Tests of a browser run in the loop that it is spoken to in.
in_browser = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def started_browser() -> AsyncIterator[Browser]:
    """One that a process shares: starting it costs more than most tests ask of it."""
    path = program("chromium", "chromium-browser", package="chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()


@asynccontextmanager
async def browser_page(browser: Browser, *expected: str) -> AsyncIterator[Page]:
    """A page of a fresh profile, on which nothing may fail quietly: what it complains of must have one of `expected` in it."""
    problems: list[str] = []
    context = await browser.new_context(reduced_motion="reduce")
    try:
        page = await context.new_page()
        page.set_default_timeout(MS)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console",
            lambda said: problems.append(f"{said.text} ({said.location['url']})") if said.type == "error" else None,
        )
        yield page
    finally:
        await context.close()
    unexpected = [text for text in problems if not any(part in text for part in expected)]
    assert not unexpected, unexpected
