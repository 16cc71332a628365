"""What an answer cost, at the price of its model: on every surface, in the console, counted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Browser, expect

from streamway.client import Client
from streamway.v1 import common_pb2
from tests.e2e.conftest import PRICE
from tests.support.browser import browser_page, in_browser
from tests.support.clients import RawRequest, chat_body, frames
from tests.support.mesh import MeshProcesses

_MS = 20_000


def _cost(prompt: int, cached: int, completion: int) -> Any:
    million = ((prompt - cached) * PRICE["input"] + cached * PRICE["cached"] + completion * PRICE["output"]) / 1e6
    return pytest.approx(million)


def _of_openai(usage: dict[str, Any]) -> Any:
    return _cost(usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"])


async def _counted(mesh: MeshProcesses) -> float:
    """In the money of all workers."""
    total = 0.0
    for name in ("adapter-0", "adapter-1"):
        for line in (await mesh.metrics(name)).splitlines():
            if line.startswith("streamway_cost_total{"):
                assert line.partition("} ")[0] == 'streamway_cost_total{model="simulated",tier="gold"'
                total += float(line.rpartition(" ")[2])
    return total


async def test_what_an_answer_cost_is_told_once_on_every_surface_and_counted(mesh: MeshProcesses) -> None:
    before, costs = await _counted(mesh), []
    async with aiohttp.ClientSession(mesh.edge_url) as session:
        for path, body in (
            ("/v1/chat/completions", chat_body("What does it cost?", max_tokens=7)),
            ("/v1/responses", {"model": "simulated", "input": "What does it cost?", "max_output_tokens": 7}),
        ):
            async with session.post(path, json=body, headers={"x-streamway-cache": "off"}) as response:
                usage = (await response.json())["usage"]
                assert float(response.headers["x-streamway-cost"]) == pytest.approx(usage["cost"], abs=1e-8)
                costs.append(usage["cost"])
            if "prompt_tokens" in usage:
                assert usage["cost"] == _of_openai(usage)
    asked = await RawRequest.post(
        mesh.edge_url + "/v1/chat/completions",
        chat_body("And as a stream?", max_tokens=7, stream=True, stream_options={"include_usage": True}),
        {"x-streamway-cache": "off"},
    )
    assert await asked.head() == 200
    told = [event async for event in asked.events() if '"cost":' in event]
    assert len(told) == 1
    async with frames(mesh.websocket_url) as client:
        await client.open("a", "And on a socket?", params={"max_tokens": 7})
        seen = await client.until("finished")
        usage = seen[-1]["usage"]
        assert usage["cost"] == _cost(usage["prompt_tokens"], usage["cached_prompt_tokens"], 7)
        # Who reads it again is told the same.
        await client.send(type="resume", id="b", generation=seen[0]["generation"])
        assert (await client.until("finished", "b"))[-1]["usage"] == usage
        costs.append(usage["cost"])
    async with (
        Client(mesh.address("router-0")) as grpc,
        grpc.generate("And over gRPC?", model="simulated", max_tokens=7) as stream,
    ):
        await stream.answer()
        assert stream.finished is not None
        costs.append(stream.finished.usage.cost)
    streamed = _of_openai(json.loads(told[0])["usage"])
    assert await _counted(mesh) - before == pytest.approx(sum(costs) + streamed.expected, rel=1e-6)


async def test_an_answer_from_the_cache_costs_nothing_and_saves_what_its_model_costs(mesh: MeshProcesses) -> None:
    body, headers = chat_body("What does a hit cost?", temperature=0), {"x-streamway-cache": "exact"}
    async with aiohttp.ClientSession(mesh.edge_url) as session, asyncio.timeout(30):
        made = 0.0
        while True:  # what is stored is off the path: it may take a moment
            async with session.post("/v1/chat/completions", json=body, headers=headers) as response:
                usage = (await response.json())["usage"]
                if response.headers["x-streamway-cache"] == "exact":
                    break
                made = made or usage["cost"]
            await asyncio.sleep(0.05)
        assert (usage["cost"], response.headers["x-streamway-cost"]) == (0, "0.00000000")
        assert float(response.headers["x-streamway-cache-saved-money"]) == pytest.approx(made, abs=1e-8)


@in_browser
async def test_the_console_shows_it_beside_the_answer_and_nothing_where_there_is_no_price(
    browser: Browser, mesh: MeshProcesses, engine_mesh: MeshProcesses
) -> None:
    async with browser_page(browser) as page:
        for asked, shown in ((mesh, 1), (engine_mesh, 0)):
            await page.goto(asked.edge_url)
            await expect(page.locator("#connection")).to_have_attribute("data-state", "open", timeout=_MS)
            await page.get_by_label("Your question").fill("What does it cost?")
            await expect(page.get_by_role("button", name="Send")).to_be_enabled(timeout=_MS)
            await page.get_by_label("Your question").press("Enter")
            await expect(page.locator('.fact[data-fact="length"]').last).to_be_visible(timeout=_MS)
            await expect(page.get_by_role("button", name="Send")).to_be_visible(timeout=_MS)
            await expect(page.locator('.fact[data-fact="cost"]')).to_have_count(shown)
    async with Client(engine_mesh.address("router-0")) as grpc, grpc.generate("Hi", model="simulated") as stream:
        await stream.answer()
    assert stream.finished is not None
    assert isinstance(stream.finished.usage, common_pb2.Usage)
    assert not stream.finished.usage.HasField("cost")
