"""The console's pages of mesh, tenants and failure in a real browser, on a mesh whose worker is killed from there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psutil
from playwright.async_api import Browser, Page, expect

from tests.support.adapter_world import eventually
from tests.support.browser import browser_page, in_browser
from tests.support.mesh import ENDS_SOON, MeshProcesses

_MS = 60_000
# A generation lasts long enough to be watched.
_ENVIRONMENT = {**ENDS_SOON, "STREAMWAY_ADAPTER_SIMULATION": json.dumps({"tokens_per_s": 20, "slots": 8})}


async def _fits(page: Page, width: int) -> None:
    await page.set_viewport_size({"width": width, "height": 800})
    assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def _workers_of_readers(page: Page) -> list[str]:
    return [
        str(each)
        for each in await page.evaluate(
            "() => [...document.querySelectorAll('.reader-head span:nth-child(2)')].map((e) => e.textContent)"
        )
    ]


@in_browser
async def test_a_worker_is_killed_from_the_console_and_its_streams_go_on_in_the_picture(
    browser: Browser, tmp_path: Path
) -> None:
    mesh = MeshProcesses(tmp_path / "mesh", arguments=("--workers", "2"), environment=_ENVIRONMENT)
    try:
        # What is in flight when the process behind it dies may be told as an error of the network.
        async with browser_page(browser, "net::ERR_", "503") as page:
            await page.goto(f"{mesh.edge_url}/failure.html")
            victims = page.locator("#victims li")
            await expect(victims).to_have_count(2, timeout=_MS)
            await page.get_by_role("button", name="Begin four streams").click()
            await expect(page.locator('.reader[data-state="live"]')).to_have_count(4, timeout=_MS)
            await expect(page.locator(".dot-stream")).to_have_count(4, timeout=_MS)
            victim = (await _workers_of_readers(page))[0]
            pid = mesh.pid_of(victim)
            await page.get_by_role("button", name=f"Kill: {victim}").click()
            # The readers go on at the other one, each position once, and the picture tells the same.
            await expect(page.locator(".reader").first).to_contain_text("taken over", timeout=_MS)
            await expect(page.locator("#happened")).to_contain_text(re.compile(rf"moved from {victim} to"), timeout=_MS)
            await expect(page.locator("#happened")).to_contain_text(f"You killed {victim}.")
            assert await page.locator(".reader").filter(has_text="out of order").count() == 0
            assert await page.locator('.reader[data-state="gone"]').count() == 0
            await mesh.restarted(victim, pid)
            await expect(page.locator("#happened")).to_contain_text(f"{victim} is back.", timeout=_MS)

            # Paused, and let go on.
            pause = page.get_by_role("button", name=f"Pause 15 s: {victim}")
            await expect(pause).to_be_enabled(timeout=_MS)
            await pause.press("Enter")
            goes_on = page.get_by_role("button", name=f"Let it go on: {victim}")
            await expect(goes_on).to_be_visible(timeout=_MS)
            assert psutil.Process(mesh.pid_of(victim)).status() == psutil.STATUS_STOPPED
            await goes_on.press("Enter")
            await expect(pause).to_be_visible(timeout=_MS)
            await page.get_by_role("button", name="Stop them").click()
            await expect(page.get_by_role("button", name="Begin four streams")).to_be_visible(timeout=_MS)
            await _fits(page, 390)

            await page.set_viewport_size({"width": 1280, "height": 800})
            await page.get_by_role("link", name="Mesh").click()
            await expect(page.locator(".box.worker.ready")).to_have_count(2, timeout=_MS)
            for kind in ("edge", "router", "store", "cache"):
                await expect(page.locator(f".box.{kind}")).to_have_count(1)
            await expect(page.locator("#workers tbody tr")).to_have_count(2)
            label = await page.locator("#picture").get_attribute("aria-label") or ""
            assert "1 edges, 1 routers, 2 of 2 workers ready" in label
            await _fits(page, 390)
            await page.get_by_role("link", name="Tenants").click()
            await expect(page.locator("#lanes tbody tr")).to_have_count(4, timeout=_MS)
            await expect(page.locator("#tenants tbody tr")).to_contain_text(["anonymous"])
            await page.locator("#language").press("Enter")
            await expect(page.locator("h1")).to_have_text("租户与通道")
            await _fits(page, 390)

        async def gone() -> bool:
            return not Path(f"/proc/{pid}").exists()

        await eventually(gone, True)
    finally:
        mesh.close()
