"""The console in a real browser: type, see tokens grow, stop, reload, lose the connection, be asked for a key."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser, Page, WebSocketRoute, expect

from streamway.auth import hash_key
from tests.support.browser import browser_page, in_browser
from tests.support.mesh import ENDS_SOON, MeshProcesses

pytestmark = in_browser

_MS = 20_000
_RENDER = """async (text) => {
  const { render } = await import('/markup.js');
  const box = document.createElement('div');
  box.append(render(text));
  return box.innerHTML;
}"""
_TAGS = {
    "P",
    "H3",
    "A",
    "STRONG",
    "EM",
    "DEL",
    "CODE",
    "BR",
    "UL",
    "OL",
    "LI",
    "BLOCKQUOTE",
    "HR",
    "DIV",
    "TABLE",
    "THEAD",
}
_TAGS |= {"TBODY", "TR", "TH", "TD", "FIGURE", "FIGCAPTION", "PRE", "SPAN", "BUTTON"}
_ATTRIBUTES = {"href", "title", "target", "rel", "class", "tabindex", "type", "start"}
_INSPECT = """async (text) => {
  const { render } = await import('/markup.js');
  const all = [...render(text).querySelectorAll('*')];
  return {
    tags: all.map((e) => e.tagName), attributes: all.flatMap((e) => e.getAttributeNames()),
    links: all.filter((e) => e.href).map((e) => e.href),
  };
}"""
_TIMED = """async (text) => {
  const { render } = await import('/markup.js');
  const began = performance.now();
  render(text);
  return performance.now() - began;
}"""
_HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<svg onload=alert(1)><style>*{color:red}</style>",
    "text <b onclick=alert(1)>b</b> <iframe srcdoc='<script>1</script>'>",
    "[l](javascript:alert(1)) [m](JaVaScRiPt:alert(1)) [n](\tjavascript:alert(1)) [o](data:text/html,<script>1</script>)",
    "[p](vbscript:x) [q](//evil.example) [r](/v1/models) [s](blob:x) <javascript:alert(1)> [t]( &#106;avascript:alert(1))",
    "![x](https://evil.example/pixel.png) ![y](javascript:alert(1)) [![z](a.png)](javascript:alert(1))",
    "[u]: javascript:alert(1)\n\n[u] [v][u]",
    "```<img src=x onerror=alert(1)>\n</code></pre><script>alert(1)</script>\n```",
    "| <img src=x onerror=alert(1)> | b |\n|---|---|\n| [l](javascript:1) | <script>1</script> |",
    '[x](https://a.example "onmouseover=alert(1)") &lt;script&gt;alert(1)&lt;/script&gt; &#60;b&#62;',
    "<https://a.example/\"onclick=alert(1)> https://a.example/'onclick='x",
    "- [ ] <input autofocus onfocus=alert(1)>\n> <form action=https://evil.example><button>",
]


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    # What the browser says of broken or refused connections is what these tests are about.
    async with browser_page(browser, "WebSocket", "401", "net::ERR_", "TrustedHTML") as page:
        yield page


async def opened(page: Page, mesh: MeshProcesses) -> Page:
    await page.goto(mesh.edge_url)
    await expect(page.locator("#connection")).to_have_attribute("data-state", "open", timeout=_MS)
    return page


async def ask(page: Page, text: str) -> None:
    await page.get_by_label("Your question").fill(text)
    await expect(page.get_by_role("button", name="Send")).to_be_enabled()
    await page.get_by_label("Your question").press("Enter")


async def at_most(page: Page, tokens: str) -> None:
    """So long an answer may be; "" is the engine's default."""
    await page.locator("#settings-open").click()
    await page.get_by_label("Most tokens of an answer").fill(tokens)
    await page.get_by_role("button", name="Done").click()


async def answer(page: Page, state: str) -> str:
    """The last answer once it is in this state."""
    last = page.locator(".turn.assistant").last
    await expect(last).to_have_attribute("data-state", state, timeout=_MS)
    return await last.locator(".body").inner_text()


async def test_tokens_grow_and_the_facts_under_an_answer_are_told(page: Page, engine_mesh: MeshProcesses) -> None:
    await opened(page, engine_mesh)
    await at_most(page, "600")  # long enough to be seen half made on a busy machine
    await ask(page, "Tell me something")
    body = page.locator(".turn.assistant .body")
    await expect(body).not_to_be_empty()
    short = len(await body.inner_text())
    await page.wait_for_function(
        "n => document.querySelector('.turn.assistant .body').innerText.length > n", arg=short + 10
    )
    assert await page.locator(".turn.assistant").get_attribute("data-state") == "live", "it grew while it was made"
    whole = await answer(page, "done")
    assert len(whole) > short + 10
    facts = await page.locator(".facts").inner_text()
    assert re.search(r"first token \d+(\.\d+)? m?s", facts)
    assert re.search(r"speed \d+\.\d tokens/s", facts)
    assert "length 600 tokens" in facts
    assert "worker adapter-0" in facts
    assert "cut at the token limit" in facts
    await expect(page.get_by_role("button", name="Send")).to_be_visible()


async def test_shift_enter_makes_a_line_and_an_empty_question_is_not_sent(
    page: Page, engine_mesh: MeshProcesses
) -> None:
    await opened(page, engine_mesh)
    question = page.get_by_label("Your question")
    await question.press("Enter")
    await question.type("one")
    await question.press("Shift+Enter")
    await question.type("two")
    assert await page.locator(".turn").count() == 0
    await question.press("Enter")
    assert await page.locator(".turn.user .body").inner_text() == "one\ntwo"


async def test_a_stopped_answer_keeps_its_text_and_the_conversation_goes_on(
    page: Page, engine_mesh: MeshProcesses
) -> None:
    await opened(page, engine_mesh)
    await at_most(page, "2000")
    await ask(page, "Tell me a very long story")
    await expect(page.locator(".turn.assistant .body")).not_to_be_empty()
    await page.get_by_role("button", name="Stop the answer").click()
    partial = await answer(page, "stopped")
    assert partial
    await ask(page, "Go on")
    await expect(page.locator(".turn.assistant")).to_have_count(2)
    await page.locator(".turn.assistant >> nth=1 >> .body").wait_for()
    await page.keyboard.press("Escape")
    await answer(page, "stopped")
    assert await page.locator(".turn.assistant .body").first.inner_text() == partial
    await page.get_by_role("button", name="Ask again").click()
    await expect(page.locator(".turn.assistant")).to_have_count(2)
    await page.keyboard.press("Escape")


async def test_a_reload_keeps_the_conversation_and_goes_on_with_the_answer(
    page: Page, engine_mesh: MeshProcesses
) -> None:
    await opened(page, engine_mesh)
    await ask(page, "Tell me a very long story")
    await expect(page.locator(".turn.assistant .body")).not_to_be_empty()
    seen = await page.locator(".turn.assistant .body").inner_text()
    await page.reload()
    await expect(page.locator("#connection")).to_have_attribute("data-state", "open", timeout=_MS)
    assert await page.locator(".turn.user .body").inner_text() == "Tell me a very long story"
    text = await answer(page, "done")
    assert text.startswith(seen[:20])
    assert len(text) > len(seen)
    await page.get_by_role("button", name="New chat").click()
    await expect(page.locator(".turn")).to_have_count(0)
    await expect(page.get_by_role("heading", name="Ask the mesh")).to_be_visible()


async def test_a_lost_connection_comes_back_by_itself_and_so_does_the_answer(
    page: Page, engine_mesh: MeshProcesses
) -> None:
    routes: list[WebSocketRoute] = []

    def through(route: WebSocketRoute) -> None:
        route.connect_to_server()
        routes.append(route)

    await page.route_web_socket(re.compile(r"/v1/stream"), through)
    await opened(page, engine_mesh)
    await ask(page, "Tell me a very long story")
    await expect(page.locator(".turn.assistant .body")).not_to_be_empty()
    await routes[-1].close(code=1001, reason="gone")
    assert await answer(page, "done")
    await expect(page.locator("#connection")).to_have_attribute("data-state", "open", timeout=_MS)
    assert len(routes) >= 2
    await expect(page.locator(".turn.assistant")).to_have_count(1)


async def test_an_error_says_what_to_do(page: Page, engine_mesh: MeshProcesses) -> None:
    await opened(page, engine_mesh)
    await page.evaluate(
        """() => { const o = document.querySelector('#model option'); o.value = o.textContent = 'no-such-model'; }"""
    )
    await ask(page, "Hello")
    await answer(page, "failed")
    await expect(page.locator(".trouble")).to_contain_text("no worker serves the model 'no-such-model'")
    await expect(page.locator(".trouble")).to_contain_text("Choose another model above.")


async def test_an_answer_cannot_become_markup_nor_load_anything(page: Page, engine_mesh: MeshProcesses) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await opened(page, engine_mesh)
    # What takes longer to read than a moment is shown as it is, and on a busy machine this may, the first time.
    for _ in range(100):
        html = await page.evaluate(_RENDER, "# Title\n\n- **b** and `c`\n\n```py\nprint('<b>')\n```\n1. one\n2. two")
        if "<strong>" in html:
            break
    assert "<h2>Title</h2>" in html
    assert "<strong>b</strong> and <code>c</code>" in html
    assert "print('&lt;b&gt;')" in html
    assert "<ol><li>one</li><li>two</li></ol>" in html
    for hostile in _HOSTILE:
        found = await page.evaluate(_INSPECT, hostile)
        assert {*found["tags"]} <= _TAGS, (hostile, found)
        assert {*found["attributes"]} <= _ATTRIBUTES, (hostile, found)
        assert all(url.startswith(("http://", "https://", "mailto:")) for url in found["links"]), (hostile, found)
    # However long, deep or crooked: nobody waits for it.
    for costly in (">" * 20_000, "__a_" * 10_000, "[" * 20_000, "- " * 5_000, "<a " * 20_000, "![" * 20_000):
        took = await page.evaluate(_TIMED, costly)
        assert took < 5_000, (costly[:10], took)
    # Not even a fault of this page's own could make a text into markup, or get a script from elsewhere.
    assert await page.evaluate("() => { try { document.body.innerHTML = '<i>'; return false } catch { return true } }")
    assert [url for url in asked if not url.startswith((engine_mesh.edge_url, "ws://"))] == []


async def test_everything_has_a_name_and_is_reached_by_keyboard(page: Page, engine_mesh: MeshProcesses) -> None:
    await opened(page, engine_mesh)
    unnamed = await page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, textarea')].filter(
        (e) => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label'))).map((e) => e.outerHTML)"""
    )
    assert unnamed == []
    await page.locator("body").press("Tab")
    seen = set()
    for _ in range(30):
        seen.add(await page.evaluate("document.activeElement.id || document.activeElement.className"))
        await page.keyboard.press("Tab")
    assert {"model", "new", "settings-open", "theme", "question"} <= seen


async def test_conversations_are_kept_with_their_branches_in_two_languages_and_widths(
    page: Page, engine_mesh: MeshProcesses
) -> None:
    await opened(page, engine_mesh)
    await at_most(page, "5")
    await ask(page, "First question")
    await answer(page, "done")
    await ask(page, "Second question")
    await answer(page, "done")

    # Asked otherwise: a branch beside the old one, with the same beginning.
    await page.locator(".turn.user").last.hover()
    await page.get_by_role("button", name="Edit the question").last.click()
    await page.get_by_label("The question, asked otherwise").fill("Second, otherwise")
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn.user .body")).to_have_text(["First question", "Second, otherwise"])
    await answer(page, "done")
    await expect(page.locator(".turn.user .branches").last).to_contain_text("2/2")
    # Made again: the earlier answer stays.
    await page.get_by_role("button", name="Answer again").first.click()
    await expect(page.locator(".turn.user")).to_have_count(1)
    await answer(page, "done")
    await expect(page.locator(".turn.assistant .branches")).to_contain_text("2/2")
    await page.get_by_role("button", name="Earlier branch").press("Enter")
    await expect(page.locator(".turn.user .body")).to_have_text(["First question", "Second, otherwise"])
    await page.get_by_role("button", name="Earlier branch").last.click()
    await expect(page.locator(".turn.user .body")).to_have_text(["First question", "Second question"])
    await page.reload()
    await expect(page.locator("#connection")).to_have_attribute("data-state", "open", timeout=_MS)
    await expect(page.locator(".turn.user .body")).to_have_text(["First question", "Second question"])

    # A second conversation; its answer goes on while another is looked at, and it is there after a reload.
    await at_most(page, "")
    await page.get_by_role("button", name="New chat").click()
    await ask(page, "A very long story")
    await expect(page.locator(".turn.assistant .body")).not_to_be_empty()
    rows = page.locator("#conversations li")
    await rows.nth(1).locator(".open").click()
    await expect(page.locator(".turn.user")).to_have_count(2)
    await expect(rows.nth(0)).to_have_attribute("data-live", "true")
    await page.reload()
    await expect(rows.filter(has_text="A very long story")).to_have_attribute("data-live", "false", timeout=_MS)
    await rows.filter(has_text="A very long story").locator(".open").click()
    assert await answer(page, "done")

    # Renamed and deleted by keyboard, also in Chinese; on a telephone the list is a drawer.
    await page.set_viewport_size({"width": 390, "height": 740})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await page.locator("#language").click()
    await expect(page.locator("#question")).to_have_attribute("placeholder", "请输入问题")
    await expect(page.locator(".fact").first).to_contain_text("首个词元")
    await page.get_by_role("button", name="对话列表").press("Enter")
    await page.get_by_role("button", name="重命名").first.press("Enter")
    await page.get_by_label("新名称").fill("故事")
    await page.keyboard.press("Enter")
    await expect(rows.first).to_contain_text("故事")
    await page.get_by_role("button", name="删除").first.press("Enter")
    await page.locator("#sure").get_by_role("button", name="删除").click()
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("First question")
    kept = await page.evaluate(
        "Object.keys(localStorage).filter((key) => key.startsWith('streamway.conversation.')).length"
    )
    assert kept == 1


async def test_a_mesh_with_keys_asks_for_one_and_survives_the_death_of_its_edge(page: Page, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"keys:\n  - {{hash: {hash_key('sesame')}, tenant: acme}}\n")
    mesh = MeshProcesses(tmp_path / "mesh", environment={**ENDS_SOON, "STREAMWAY_API_KEYS_FILE": str(keys)})
    try:
        await page.goto(mesh.edge_url)
        await expect(page.locator("#connection")).to_have_attribute("data-state", "refused", timeout=_MS)
        await page.get_by_label("API key").fill("sesame")
        await page.get_by_role("button", name="Done").click()
        await expect(page.locator("#connection")).to_have_attribute("data-state", "open", timeout=_MS)
        mesh.kill("edge-0")
        await expect(page.locator("#connection")).not_to_have_attribute("data-state", "open", timeout=_MS)
        await expect(page.locator("#connection")).to_have_attribute("data-state", "open", timeout=_MS)
        await ask(page, "Hello")
        assert await answer(page, "done")
    finally:
        mesh.close()
