"""`streamway.js` in a real browser, at an edge that takes no more WebSockets for a while."""

from __future__ import annotations

from playwright.async_api import Browser

from tests.support.browser import MS, browser_page, in_browser
from tests.support.edge_world import edge_world
from tests.support.flood import CROWDED, flood, level

CONNECT = """async () => {
  const { StreamwayClient } = await import("/streamway.js");
  const states = [];
  const client = new StreamwayClient({ times: { healthMs: 1000 } });
  client.addEventListener("state", ({ detail }) => states.push(`${detail.state} ${detail.transport}`));
  client.connect();
  Object.assign(window, { client, states });
}"""


@in_browser
async def test_a_page_goes_by_server_sent_events_at_once_and_takes_the_websocket_when_it_may(
    browser: Browser,
) -> None:
    async with edge_world(**CROWDED) as world, browser_page(browser, "WebSocket", "favicon.ico") as page:
        async with flood(world):
            await level(world, "requests", 1)
            await page.goto(f"{world.url}/ladder.js")
            await page.evaluate(CONNECT)
            await page.wait_for_function("() => states.includes('open sse')", timeout=MS)
            assert (await page.evaluate("states"))[:4] == [
                "connecting websocket",
                "waiting sse",
                "connecting sse",
                "open sse",
            ]
            assert await world.metric("streamway_edge_refused_websockets_total") >= 1
        await page.wait_for_function("() => states.includes('open websocket')", timeout=60_000)
        await page.evaluate("client.close()")
