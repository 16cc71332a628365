"""`streamway.js` in a real browser behind a network that fails: the reader sees one unbroken text."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.browser import MS, browser_page, in_browser
from tests.support.mesh import MeshProcesses
from tests.support.proxy import Proxy, proxy_to
from tests.support.simulated_text import simulated_answer

pytestmark = in_browser

# Slow enough that something can happen in mid-answer, fast enough to be done.
TOKENS, RATE = 240, 60
# Lives longer than a browser on a busy machine takes for two reloads.
LONG = 900
# What the browser says of broken or refused connections is what these tests are about.
EXPECTED = ("WebSocket", "ERR_", "401", "503", "favicon.ico")
# The client's own times, shortened where a test would wait for them.
HASTY = {"deadMs": 3000, "pingMs": 1000, "connectMs": 2000, "healthMs": 4000, "pollRetryMs": 500}

# Asks one question with a client of its own, and notes all that happens.
ASK = """async ([prompt, tokens, times]) => {
  const { StreamwayClient } = await import("/streamway.js");
  const client = new StreamwayClient({ times });
  const seen = { text: "", positions: [], types: [], states: [], ended: null };
  client.addEventListener("state", ({ detail }) => seen.states.push([detail.state, detail.transport]));
  client.connect();
  const request = { model: "simulated", messages: [{ role: "user", content: prompt }], params: { max_tokens: tokens } };
  const generation = client.open(request);
  Object.assign(window, { client, seen, generation });
  (async () => {
    for await (const event of generation) {
      seen.types.push(event.type);
      if (event.position) seen.positions.push([event.first_position ?? event.position, event.position]);
      if (event.type === "token") seen.text += event.text;
      if (event.worker) seen.worker = event.worker;
    }
    seen.ended = seen.types.at(-1);
  })();
}"""


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    processes = MeshProcesses(
        tmp_path_factory.mktemp("streamway-js"),
        arguments=("--workers", "2", "--edges", "2"),
        environment={"STREAMWAY_ADAPTER_SIMULATION": json.dumps({"tokens_per_s": RATE})},
        start_s=120,
    )
    yield processes
    processes.close()


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(mesh: MeshProcesses) -> AsyncIterator[Proxy]:
    async with proxy_to(mesh.edge_url) as proxy:
        yield proxy


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    async with browser_page(browser, *EXPECTED) as page:
        yield page


async def ask(page: Page, proxy: Proxy, prompt: str, tokens: int = TOKENS, **times: int) -> None:
    """Asks from a page of the same origin that has no client of its own."""
    await page.goto(f"{proxy.url}/ladder.js")
    await page.evaluate(ASK, [prompt, tokens, times])


async def spoken(page: Page, characters: int = 40) -> None:
    """Waits until the answer has begun."""
    await page.wait_for_function("n => seen.text.length >= n", arg=characters, timeout=MS)


async def whole(page: Page) -> dict[str, Any]:
    """Waits for the end; everything that was seen, the positions being one row without hole or repeat."""
    await page.wait_for_function("() => seen.ended !== null", timeout=90_000)
    seen: dict[str, Any] = await page.evaluate("seen")
    due = 1
    for first, last in seen["positions"]:
        assert first == due, f"position {first} came where {due} was due"
        due = last + 1
    assert seen["ended"] == "finished", seen["types"][-3:]
    return seen


def ways(seen: dict[str, Any]) -> list[str]:
    """The transports that were up, in order."""
    return [way for way, _ in itertools.groupby(way for state, way in seen["states"] if state == "open")]


async def test_a_cut_connection_goes_on_by_server_sent_events(mesh: MeshProcesses, proxy: Proxy, page: Page) -> None:
    await ask(page, proxy, "a cut")
    await spoken(page)
    proxy.cut()
    seen = await whole(page)
    assert seen["text"] == simulated_answer("a cut", TOKENS)
    assert ways(seen) == ["websocket", "sse"]
    assert seen["types"].count("accepted") == 1


async def test_cut_again_it_goes_on_by_long_polls_and_climbs_back(
    mesh: MeshProcesses, proxy: Proxy, page: Page
) -> None:
    await ask(page, proxy, "cut again", 400, healthMs=2500)
    await spoken(page)
    proxy.cut()
    await page.wait_for_function("() => seen.states.some(([s, t]) => s === 'open' && t === 'sse')", timeout=MS)
    await asyncio.sleep(0.5)
    proxy.cut()
    seen = await whole(page)
    assert seen["text"] == simulated_answer("cut again", 400)
    assert ways(seen)[:3] == ["websocket", "sse", "poll"]
    await page.wait_for_function("() => client.state === 'open' && client.transport === 'websocket'", timeout=MS)


async def test_where_websockets_do_not_get_through_it_answers_all_the_same(
    mesh: MeshProcesses, proxy: Proxy, page: Page
) -> None:
    proxy.no_upgrades = True
    await ask(page, proxy, "no upgrade", healthMs=2000)
    seen = await whole(page)
    assert seen["text"] == simulated_answer("no upgrade", TOKENS)
    assert ways(seen)[0] == "sse"
    assert proxy.upgrades >= 5, "four attempts, and one when it was well again"
    proxy.no_upgrades = False
    await page.wait_for_function("() => client.state === 'open' && client.transport === 'websocket'", timeout=MS)


async def test_a_network_that_swallows_everything_is_noticed(mesh: MeshProcesses, proxy: Proxy, page: Page) -> None:
    await ask(page, proxy, "a black hole", **HASTY)
    await spoken(page)
    proxy.weather = "blackhole"
    await page.wait_for_function("() => client.state !== 'open'", timeout=MS)
    proxy.cut()
    proxy.weather = "fair"
    seen = await whole(page)
    assert seen["text"] == simulated_answer("a black hole", TOKENS)


async def test_a_slow_network_is_not_for_websockets(mesh: MeshProcesses, proxy: Proxy, page: Page) -> None:
    proxy.delay_s = 0.5
    # Each way is given up by its first round trip, of a second and more: the answer has to last longer than two of them take
    # on a busy machine, or it ends on the way that was about to be left.
    await ask(page, proxy, "slow", LONG)
    await page.wait_for_function("() => seen.states.some(([s, t]) => s === 'open' && t === 'poll')", timeout=MS)
    proxy.delay_s = 0
    seen = await whole(page)
    assert seen["text"] == simulated_answer("slow", LONG)
    assert ways(seen)[:3] == ["websocket", "sse", "poll"]


async def test_without_a_network_for_a_while_nothing_is_lost(mesh: MeshProcesses, proxy: Proxy, page: Page) -> None:
    await ask(page, proxy, "offline", **HASTY)
    await spoken(page)
    proxy.weather = "refusing"
    proxy.cut()
    await asyncio.sleep(4)
    proxy.weather = "fair"
    seen = await whole(page)
    assert seen["text"] == simulated_answer("offline", TOKENS)


async def test_a_question_whose_receipt_was_lost_is_asked_once(mesh: MeshProcesses, proxy: Proxy, page: Page) -> None:
    proxy.deaf_to = b'"type":"accepted"'
    await ask(page, proxy, "once")
    await proxy.deafened()
    cut_ms = time.time() * 1000
    proxy.cut()
    proxy.deaf_to = b""
    seen = await whole(page)
    assert seen["text"] == simulated_answer("once", TOKENS)
    generation = await page.evaluate("generation.answer.generation")
    made_ms = int(generation.replace("-", "")[:12], 16)
    assert made_ms < cut_ms, "the second asking found what the first began"


async def test_a_killed_edge_is_replaced(mesh: MeshProcesses, proxy: Proxy, page: Page) -> None:
    await ask(page, proxy, "a killed edge")
    await spoken(page)
    pids = [(name, mesh.kill(name)) for name in ("edge-0", "edge-1")]
    seen = await whole(page)
    assert seen["text"] == simulated_answer("a killed edge", TOKENS)
    for name, pid in pids:
        await mesh.restarted(name, pid, 60)


async def test_an_edge_that_stops_in_order_hands_over(mesh: MeshProcesses, proxy: Proxy, page: Page) -> None:
    await ask(page, proxy, "going away")
    await spoken(page)
    pids = [(name, mesh.kill(name, signal.SIGTERM)) for name in ("edge-0", "edge-1")]
    seen = await whole(page)
    assert seen["text"] == simulated_answer("going away", TOKENS)
    for name, pid in pids:
        await mesh.restarted(name, pid, 60)


async def test_a_killed_worker_is_taken_over_and_the_page_is_told(
    mesh: MeshProcesses, proxy: Proxy, page: Page
) -> None:
    await ask(page, proxy, "a killed worker")
    await spoken(page)
    worker = await page.evaluate("seen.worker")
    pid = mesh.kill(worker)
    seen = await whole(page)
    assert seen["text"] == simulated_answer("a killed worker", TOKENS)
    assert seen["types"].count("taken_over") == 1
    assert seen["worker"] != worker
    await mesh.restarted(worker, pid, 60)


async def test_another_page_gets_everything_back_by_the_restore_id(
    mesh: MeshProcesses, proxy: Proxy, page: Page
) -> None:
    await ask(page, proxy, "restore me")
    await spoken(page)
    restore_id = await page.evaluate("client.restoreId")
    await page.goto(f"{proxy.url}/answer.js")
    await page.evaluate(
        """async (id) => {
          const { StreamwayClient } = await import("/streamway.js");
          const client = new StreamwayClient();
          window.text = "";
          window.ended = null;
          client.addEventListener("restored", async ({ detail }) => {
            for await (const event of detail) {
              if (event.type === "token") text += event.text;
              ended = event.type;
            }
            ended += "!";
          });
          client.restore(id);
          client.connect();
        }""",
        restore_id,
    )
    await page.wait_for_function("() => ended === 'finished!'", timeout=MS)
    assert await page.evaluate("text") == simulated_answer("restore me", TOKENS)


async def test_a_cancel_gets_through_on_every_way(mesh: MeshProcesses, proxy: Proxy, page: Page) -> None:
    for blocked in (False, True):
        proxy.no_upgrades = blocked
        await ask(page, proxy, "cancel me", 2000)
        await spoken(page)
        await page.evaluate("generation.cancel()")
        await page.wait_for_function("() => seen.ended !== null", timeout=MS)
        assert await page.evaluate("seen.types.at(-1)") == "error"


async def test_the_console_goes_on_after_a_reload(mesh: MeshProcesses, proxy: Proxy, page: Page) -> None:
    await page.goto(proxy.url)
    await expect(page.locator("#connection")).to_have_attribute("data-state", "open", timeout=MS)
    await page.locator("#settings-open").click()
    await page.get_by_label("Most tokens of an answer").fill(str(LONG))
    await page.get_by_role("button", name="Done").click()
    await page.get_by_label("Your question").fill("reload me")
    await page.keyboard.press("Enter")
    body = page.locator(".turn.assistant .body")
    await expect(body).not_to_be_empty(timeout=MS)
    for _ in range(2):
        await asyncio.sleep(1)
        await page.reload()
        await expect(page.locator(".turn.assistant")).to_have_attribute("data-state", "live", timeout=MS)
    await expect(page.locator(".turn.assistant")).to_have_attribute("data-state", "done", timeout=2 * MS)
    kept = "localStorage.getItem('streamway.conversation.' + sessionStorage.getItem('streamway.shown'))"
    nodes = await page.evaluate(f"JSON.parse({kept}).nodes")
    assert nodes[-1]["text"] == simulated_answer("reload me", LONG)
    await expect(page.locator(".facts")).to_contain_text(f"length {LONG} tokens")


async def test_the_console_shows_the_way_it_is_connected(proxy: Proxy, page: Page) -> None:
    await page.goto(proxy.url)
    connection = page.locator("#connection")
    await expect(connection).to_have_attribute("data-state", "open", timeout=MS)
    await expect(page.locator("#connection-text")).to_have_text("connected")
    proxy.cut()
    await expect(connection).to_have_attribute("data-transport", "sse", timeout=MS)
    await expect(page.locator("#connection-text")).to_have_text("connected by server-sent events", timeout=MS)
