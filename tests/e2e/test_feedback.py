"""What is said of a cached answer over HTTP reaches the cache, for the tenant of the key only."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
from playwright.async_api import Browser, Page, expect

from tests.e2e.conftest import MOST_FEEDBACK, key_of
from tests.support.browser import browser_page, in_browser
from tests.support.mesh import MeshProcesses

_ASKED, _AGAIN = "How do I descale a kettle?", "How can I descale a kettle?"


def _client(mesh: MeshProcesses, tenant: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(mesh.edge_url, headers={"Authorization": f"Bearer {key_of(tenant)}"})


async def _ask(client: aiohttp.ClientSession, text: str, policy: str = "exact") -> tuple[str, str]:
    """State of the cache, and the entry of a hit."""
    body = {"model": "simulated", "temperature": 0, "messages": [{"role": "user", "content": text}]}
    # Without a channel the lookup is in front: nothing depends on who is quicker.
    headers = {"x-streamway-cache": policy, "x-streamway-durability": "off"}
    async with client.post("/v1/chat/completions", json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        return response.headers["x-streamway-cache"], response.headers.get("x-streamway-cache-entry", "")


async def _entry_of(client: aiohttp.ClientSession, text: str, policy: str = "exact") -> str:
    for _ in range(400):  # what is stored is off the path: it may take a moment
        state, entry = await _ask(client, text, policy)
        if state == "exact":
            return entry
        await asyncio.sleep(0.05)
    raise AssertionError(f"never a hit, at last {state}")


async def _found_by_likeness(client: aiohttp.ClientSession, text: str) -> None:
    """Waits until an entry is encoded, without a miss that would store an answer of its own."""
    body = {"model": "simulated", "temperature": 0, "messages": [{"role": "user", "content": text}]}
    headers = {"x-streamway-cache": "semantic", "x-streamway-durability": "off", "Cache-Control": "only-if-cached"}
    for _ in range(400):
        async with client.post("/v1/chat/completions", json=body, headers=headers) as response:
            if response.status == 200:
                return
        await asyncio.sleep(0.05)
    raise AssertionError("never found")


async def _say(client: aiohttp.ClientSession, entry: str, body: Any) -> tuple[int, dict[str, Any], str]:
    """Status, body, Retry-After."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    async with client.post(f"/v1/cache/entries/{entry}/feedback", data=data, headers=headers) as response:
        return response.status, await response.json(), response.headers.get("Retry-After", "")


async def test_a_wrong_answer_of_the_same_question_is_not_given_again_and_only_its_tenant_can_say_so(
    cache_mesh: MeshProcesses,
) -> None:
    async with _client(cache_mesh, "owner") as owner, _client(cache_mesh, "stranger") as stranger:
        entry = await _entry_of(owner, _ASKED)
        status, foreign, _ = await _say(stranger, entry, {"good": False})
        assert (status, foreign["error"]["message"]) == (404, "there is no such entry in the cache")
        status, unknown, _ = await _say(stranger, "nothing", {"good": False})
        assert (status, unknown["error"]) == (404, foreign["error"]), "as unknown as none"
        assert await _ask(owner, _ASKED) == ("exact", entry)

        assert (await _say(owner, entry, {"good": True}))[0] == 200
        assert await _ask(owner, _ASKED) == ("exact", entry)
        status, told, _ = await _say(owner, entry, {"good": False})
        assert (status, told) == (200, {"entry": entry, "object": "cache.feedback", "good": False})
        assert (await _ask(owner, _ASKED))[0] == "miss"
        status, _, _ = await _say(owner, entry, {"good": False})
        assert status == 404, "it is gone"


async def test_h6_a_wrong_answer_to_another_question_raises_the_floor_and_its_own_question_is_still_answered(
    cache_mesh: MeshProcesses,
) -> None:
    async with _client(cache_mesh, "crow") as crow:
        entry = await _entry_of(crow, _ASKED, "semantic")
        await _found_by_likeness(crow, _AGAIN)
        assert await _ask(crow, _AGAIN, "semantic") == ("semantic", entry)
        assert (await _say(crow, entry, {"good": False}))[0] == 200
        assert (await _ask(crow, _AGAIN, "semantic"))[0] == "miss"
        assert await _ask(crow, _ASKED, "semantic") == ("exact", entry)


async def test_too_much_feedback_is_refused_with_when_to_come_back_and_bad_bodies_do_not_count(
    cache_mesh: MeshProcesses,
) -> None:
    async with _client(cache_mesh, "loud") as loud:
        for body, field in (
            (b"", None),
            (b"{", None),
            ({}, "good"),
            ({"good": 1}, "good"),
            ({"good": True, "x": 1}, "x"),
        ):
            status, told, _ = await _say(loud, "nothing", body)
            assert (status, told["error"]["param"]) == (400, field), told
        said = [await _say(loud, "nothing", {"good": True}) for _ in range(MOST_FEEDBACK)]
        assert [status for status, _, _ in said] == [404] * MOST_FEEDBACK
        # A bucket that fills while a busy machine is slow may let one or two more through.
        for _ in range(50):
            status, told, after = await _say(loud, "nothing", {"good": True})
            if status != 404:
                break
        assert (status, told["error"]["code"]) == (429, "too_much_feedback")
        assert 1 <= int(after) <= 60 / MOST_FEEDBACK


async def _asked_anew(page: Page, text: str) -> str:
    """What the facts under the answer say, in a new conversation."""
    await page.get_by_role("button", name="New chat").click()
    await page.get_by_label("Your question").fill(text)
    await page.keyboard.press("Enter")
    answer = page.locator(".turn.assistant").last
    await expect(answer).to_have_attribute("data-state", "done", timeout=20_000)
    return await answer.locator(".facts").inner_text()


@in_browser
async def test_h6_a_thumb_under_an_answer_from_the_cache_takes_it_out_of_the_cache(
    browser: Browser, cache_mesh: MeshProcesses
) -> None:
    async with browser_page(browser) as page:
        await page.add_init_script(
            f"sessionStorage.setItem('streamway.key', '{key_of('page')}');"
            "sessionStorage.setItem('streamway.settings', JSON.stringify({cache: true}));"
        )
        await page.goto(cache_mesh.edge_url)
        await expect(page.locator("#connection")).to_have_attribute("data-state", "open", timeout=20_000)
        wrong = page.get_by_role("button", name="This earlier answer is wrong")
        assert "miss" in await _asked_anew(page, _ASKED)
        await expect(wrong).to_have_count(0)
        for _ in range(100):  # what is stored is off the path: it may take a moment
            if "exact" in await _asked_anew(page, _ASKED):
                break
        await expect(wrong).to_be_visible()

        # By keyboard: the one thumb, then the other.
        await page.get_by_role("button", name="This earlier answer is right").focus()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator(".opinion").get_by_role("status")).to_contain_text("not be given", timeout=20_000)
        await expect(wrong).to_have_attribute("aria-pressed", "true")
        await expect(wrong).to_be_focused()
        await page.reload()
        await expect(wrong).to_have_attribute("aria-pressed", "true")
        assert "miss" in await _asked_anew(page, _ASKED), "nobody gets it again"
