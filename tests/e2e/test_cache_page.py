"""The console's page of the cache in a real browser, on a mesh whose cache has something to tell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.e2e.conftest import key_of
from tests.support.adapter_world import eventually
from tests.support.browser import browser_page, in_browser
from tests.support.mesh import MeshProcesses

pytestmark = in_browser

_MS = 20_000
STORED, FOLDED, OPPOSITE = "How do I enable the alarm?", "how do i enable the alarm", "How do I disable the alarm?"
# What moved without being asked to, as browsers count it.
_SHIFTS = """() => new Promise((done) => {
  let sum = 0;
  new PerformanceObserver((list) => { for (const entry of list.getEntries()) sum += entry.value; })
    .observe({ type: "layout-shift", buffered: true });
  requestAnimationFrame(() => setTimeout(() => done(sum), 100));
})"""


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    async with browser_page(browser) as page:
        await page.add_init_script(f"sessionStorage.setItem('streamway.key', '{key_of('acme')}')")
        yield page


async def ask(mesh: MeshProcesses, text: str, **more: str) -> str:
    """Asks for acme; gives what the cache said."""
    # Without a channel the lookup is in front: nothing depends on who is quicker.
    headers = {
        "x-streamway-cache": "semantic",
        "x-streamway-durability": "off",
        "Authorization": f"Bearer {key_of('acme')}",
    }
    body = {"model": "simulated", "messages": [{"role": "user", "content": text}]}
    async with (
        aiohttp.ClientSession(headers={**headers, **more}) as session,
        session.post(f"{mesh.edge_url}/v1/chat/completions", json=body) as response,
    ):
        await response.read()
        return response.headers["x-streamway-cache"]


async def told(mesh: MeshProcesses, tenant: str, query: str = "") -> dict[str, Any]:
    """What a tenant is told."""
    headers = {"Authorization": f"Bearer {key_of(tenant)}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{mesh.edge_url}/v1/cache{query}") as response,
    ):
        assert response.headers["Cache-Control"] == "no-store"
        found: dict[str, Any] = await response.json()
        return found


async def test_h6_the_page_shows_hits_by_level_refusals_with_their_rule_and_the_ledger(
    cache_mesh: MeshProcesses, page: Page
) -> None:
    assert await ask(cache_mesh, STORED) == "miss"
    # Storing and indexing are off the path of the answer.
    await eventually(lambda: ask(cache_mesh, STORED), "exact")
    assert await ask(cache_mesh, FOLDED) == "folded"

    async def refused() -> bool:
        # Not stored: else it would be found by its key from its second time on.
        await ask(cache_mesh, OPPOSITE, **{"Cache-Control": "no-store"})
        return (await told(cache_mesh, "acme"))["semantic"]["refused"].get("antonyms", 0) > 0

    await eventually(refused, True)
    await page.goto(f"{cache_mesh.edge_url}/cache.html")
    await expect(page.locator("#shown")).to_be_visible(timeout=_MS)
    await expect(page.locator("#rate")).to_contain_text("Hit rate")
    await expect(page.locator("#levels tr").nth(0)).to_contain_text("the same request")
    await expect(page.locator("#levels tr").nth(1).locator("td").nth(1)).to_have_text("1")
    await expect(page.locator("#bound")).to_contain_text("the budget is")
    await expect(page.locator("#served")).to_contain_text("of would-be answers are compared")
    # Rules compare stems.
    await expect(page.locator("#near tbody tr").first).to_contain_text("antonyms: disabl / enabl")
    await expect(page.locator("#curve-said")).to_contain_text("0.900")
    assert await page.locator("#curve path").get_attribute("d")
    await expect(page.locator("#ledger tbody tr")).to_have_count(8)
    await expect(page.locator("#ledger .balance td").first).to_have_text("balance")
    assert await page.evaluate(_SHIFTS) < 0.02

    # By keyboard, and in Chinese.
    await page.locator("#language").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("缓存")
    await expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    await page.locator("#again").press("Enter")
    await expect(page.locator("#ledger .balance td").first).to_have_text("结余")
    await page.reload()
    await expect(page.locator("h1")).to_have_text("缓存")
    # A telephone: tables roll, the page does not.
    await page.set_viewport_size({"width": 360, "height": 740})
    await expect(page.locator("#shown")).to_be_visible(timeout=_MS)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360

    # Another tenant hears nothing of it, whatever it asks for; nobody without a key hears anything.
    other = await told(cache_mesh, "bolt", "?tenant=acme")
    assert other["available"]
    assert (other["hits"], other["misses"], other["entries"], other.get("savings")) == (0, 0, 0, None)
    assert "semantic" not in other
    async with aiohttp.ClientSession() as session, session.get(f"{cache_mesh.edge_url}/v1/cache") as response:
        assert response.status == 401


async def test_the_page_is_readable_in_the_dark_and_has_a_way_back(cache_mesh: MeshProcesses, page: Page) -> None:
    await page.emulate_media(color_scheme="dark")
    await page.goto(cache_mesh.edge_url)
    await page.get_by_role("link", name="Cache").click()
    await expect(page.locator("#shown")).to_be_visible(timeout=_MS)
    paper = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(13, 20, 19)"
    await page.get_by_role("link", name="Streamway").click()
    await expect(page.locator("#question")).to_be_visible()
