"""What is said of a cached answer over HTTP reaches the cache, for the tenant of the key only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Browser, Page, expect

from streamway.auth import hash_key
from tests.support.browser import browser_page, in_browser
from tests.support.mesh import MeshProcesses

_TENANTS = ("acme", "bolt", "crow", "loud", "page")
_MOST = 4
_ASKED, _AGAIN = "How do I descale a kettle?", "How can I descale a kettle?"


@pytest.fixture(scope="module")
def keyed_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    folder = tmp_path_factory.mktemp("feedback-mesh")
    keys = folder / "keys.yaml"
    rows = [f"  - {{hash: {hash_key('key of ' + tenant)}, tenant: {tenant}}}\n" for tenant in _TENANTS]
    keys.write_text("keys:\n" + "".join(rows), encoding="utf-8")
    environment = {
        "STREAMWAY_API_KEYS_FILE": str(keys),
        "STREAMWAY_ROUTER_FEEDBACK_PER_MINUTE": str(_MOST),
        "STREAMWAY_ROUTER_CACHE_BUDGET_MS": "1000",
        "STREAMWAY_ROUTER_CACHE_SEMANTIC_BUDGET_MS": "1000",
        "STREAMWAY_CACHE_ENCODER_TIMEOUT_S": "10",
        # No draw sends a question to a worker that the cache could answer.
        "STREAMWAY_CACHE_SEMANTIC_THRESHOLD": "0.95",
        "STREAMWAY_CACHE_SEMANTIC_AUDIT_SHARE": "0",
        "STREAMWAY_CACHE_SEMANTIC_COMPARE_SHARE": "0",
    }
    processes = MeshProcesses(folder / "mesh", environment=environment)
    yield processes
    processes.close()


def _client(mesh: MeshProcesses, tenant: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(mesh.edge_url, headers={"Authorization": f"Bearer key of {tenant}"})


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
    keyed_mesh: MeshProcesses,
) -> None:
    async with _client(keyed_mesh, "acme") as acme, _client(keyed_mesh, "bolt") as bolt:
        entry = await _entry_of(acme, _ASKED)
        status, foreign, _ = await _say(bolt, entry, {"good": False})
        assert (status, foreign["error"]["message"]) == (404, "there is no such entry in the cache")
        status, unknown, _ = await _say(bolt, "nothing", {"good": False})
        assert (status, unknown["error"]) == (404, foreign["error"]), "as unknown as none"
        assert await _ask(acme, _ASKED) == ("exact", entry)

        assert (await _say(acme, entry, {"good": True}))[0] == 200
        assert await _ask(acme, _ASKED) == ("exact", entry)
        status, told, _ = await _say(acme, entry, {"good": False})
        assert (status, told) == (200, {"entry": entry, "object": "cache.feedback", "good": False})
        assert (await _ask(acme, _ASKED))[0] == "miss"
        status, _, _ = await _say(acme, entry, {"good": False})
        assert status == 404, "it is gone"


async def test_h6_a_wrong_answer_to_another_question_raises_the_floor_and_its_own_question_is_still_answered(
    keyed_mesh: MeshProcesses,
) -> None:
    async with _client(keyed_mesh, "crow") as crow:
        entry = await _entry_of(crow, _ASKED, "semantic")
        await _found_by_likeness(crow, _AGAIN)
        assert await _ask(crow, _AGAIN, "semantic") == ("semantic", entry)
        assert (await _say(crow, entry, {"good": False}))[0] == 200
        assert (await _ask(crow, _AGAIN, "semantic"))[0] == "miss"
        assert await _ask(crow, _ASKED, "semantic") == ("exact", entry)


async def test_too_much_feedback_is_refused_with_when_to_come_back_and_bad_bodies_do_not_count(
    keyed_mesh: MeshProcesses,
) -> None:
    async with _client(keyed_mesh, "loud") as loud:
        for body, field in (
            (b"", None),
            (b"{", None),
            ({}, "good"),
            ({"good": 1}, "good"),
            ({"good": True, "x": 1}, "x"),
        ):
            status, told, _ = await _say(loud, "nothing", body)
            assert (status, told["error"]["param"]) == (400, field), told
        said = [await _say(loud, "nothing", {"good": True}) for _ in range(_MOST)]
        assert [status for status, _, _ in said] == [404] * _MOST
        # A bucket that fills while a busy machine is slow may let one or two more through.
        for _ in range(50):
            status, told, after = await _say(loud, "nothing", {"good": True})
            if status != 404:
                break
        assert (status, told["error"]["code"]) == (429, "too_much_feedback")
        assert 1 <= int(after) <= 60 / _MOST


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
    browser: Browser, keyed_mesh: MeshProcesses
) -> None:
    async with browser_page(browser) as page:
        await page.add_init_script(
            "sessionStorage.setItem('streamway.key', 'key of page');"
            "sessionStorage.setItem('streamway.settings', JSON.stringify({cache: true}));"
        )
        await page.goto(keyed_mesh.edge_url)
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
