"""The Responses API through the official SDK against a real mesh: streams, background, resume at another edge, cancel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest

from streamway.auth import hash_key
from tests.support.mesh import ENDS_SOON, MeshProcesses

RATE = 40
END = ("response.completed", "response.incomplete", "response.failed")


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    folder = tmp_path_factory.mktemp("responses")
    keys = folder / "keys.yaml"
    keys.write_text(
        f"keys:\n  - {{hash: {hash_key('sesame')}, tenant: acme}}\n  - {{hash: {hash_key('other')}, tenant: umbrella}}\n"
    )
    processes = MeshProcesses(
        folder / "mesh",
        arguments=("--workers", "2", "--edges", "2"),
        environment={
            **ENDS_SOON,
            "STREAMWAY_ADAPTER_SIMULATION": json.dumps({"tokens_per_s": RATE}),
            "STREAMWAY_API_KEYS_FILE": str(keys),
        },
        start_s=120,
    )
    yield processes
    processes.close()


@pytest.fixture
async def client(mesh: MeshProcesses) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{mesh.edge_url}/v1", api_key="sesame", max_retries=4) as client:
        yield client


async def text_of(client: openai.AsyncOpenAI, prompt: str, tokens: int) -> str:
    """The answer as it is when nothing happens."""
    completion = await client.chat.completions.create(
        model="simulated", messages=[{"role": "user", "content": prompt}], max_tokens=tokens
    )
    return completion.choices[0].message.content or ""


async def ended(client: openai.AsyncOpenAI, id_: str, within_s: float = 60.0) -> Any:
    """Polls a response to its end, as clients of background responses do."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                response = await client.responses.retrieve(id_)
            except openai.APIConnectionError:
                response = None
            if response is not None and response.status not in ("queued", "in_progress"):
                return response
            await asyncio.sleep(0.5)


async def spoken(client: openai.AsyncOpenAI, id_: str) -> Any:
    """Waits for the first words; the response as it is then."""
    async with asyncio.timeout(20):
        while not (response := await client.responses.retrieve(id_)).output_text:
            await asyncio.sleep(0.05)
    return response


def assert_grows(events: list[Any]) -> None:
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))


async def test_a_response_is_made_and_can_be_had_again(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(
        model="simulated", input="whole", max_output_tokens=20, metadata={"of": "a test"}, temperature=0.5
    )
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text == await text_of(client, "whole", 20)
    assert response.usage is not None
    assert response.usage.output_tokens == 20
    assert (response.metadata, response.temperature) == ({"of": "a test"}, 0.5)
    assert await client.responses.retrieve(response.id) == response


async def test_a_stream_has_the_events_the_sdk_builds_a_response_from(client: openai.AsyncOpenAI) -> None:
    async with client.responses.stream(model="simulated", input="streamed", max_output_tokens=30) as stream:
        events = [event async for event in stream]
    assert_grows(events)
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == await text_of(client, "streamed", 30)
    assert events[-1].response.output_text == text


async def test_an_answer_that_ends_by_itself_is_completed(client: openai.AsyncOpenAI) -> None:
    stream = await client.responses.create(model="simulated", input="by itself", stream=True)
    events = [event async for event in stream]
    assert events[-1].type == "response.completed"
    assert events[-1].response.status == "completed"


async def test_a_background_response_runs_to_its_end_without_a_reader(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(
        model="simulated", input="in the background", background=True, max_output_tokens=120
    )
    assert response.status in ("queued", "in_progress")
    half = await spoken(client, response.id)
    whole = await text_of(client, "in the background", 120)
    assert half.status == "in_progress"
    assert whole.startswith(half.output_text)
    end = await ended(client, response.id)
    assert (end.status, end.output_text) == ("incomplete", whole)


async def test_a_broken_stream_goes_on_at_another_edge(mesh: MeshProcesses, client: openai.AsyncOpenAI) -> None:
    whole = await text_of(client, "broken", 200)
    stream = await client.responses.create(
        model="simulated", input="broken", background=True, stream=True, max_output_tokens=200
    )
    events: list[Any] = []
    killed = False
    with pytest.raises(openai.OpenAIError):
        async for event in stream:
            events.append(event)
            if len(events) == 40 and not killed:
                killed = True
                pids = [(name, mesh.kill(name)) for name in ("edge-0", "edge-1")]
        raise openai.OpenAIError("it ended as if nothing had been cut")
    assert killed
    assert events[-1].type not in END
    for name, pid in pids:
        await mesh.restarted(name, pid, 60)
    for _ in range(20):
        try:
            stream = await client.responses.retrieve(
                events[0].response.id, stream=True, starting_after=events[-1].sequence_number
            )
            break
        except (openai.APIConnectionError, openai.InternalServerError):
            await asyncio.sleep(0.5)
    events += [event async for event in stream]
    assert_grows(events)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole
    assert events[-1].response.output_text == whole


async def test_a_stream_can_be_read_again_from_any_number(client: openai.AsyncOpenAI) -> None:
    stream = await client.responses.create(model="simulated", input="again", stream=True, max_output_tokens=40)
    events = [event async for event in stream]
    id_ = events[0].response.id
    for after in (None, 0, 3, events[len(events) // 2].sequence_number, events[-2].sequence_number, 10_000):
        options = {} if after is None else {"starting_after": after}
        again = [event async for event in await client.responses.retrieve(id_, stream=True, **options)]
        assert again == [event for event in events if event.sequence_number > (-1 if after is None else after)]


async def test_a_cancelled_response_keeps_what_it_has(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(model="simulated", input="cancel", background=True, max_output_tokens=2000)
    await spoken(client, response.id)
    cancelled = await client.responses.cancel(response.id)
    assert cancelled.status == "cancelled"
    assert cancelled.output_text
    assert await client.responses.cancel(response.id) == cancelled
    assert await client.responses.retrieve(response.id) == cancelled
    events = [event async for event in await client.responses.retrieve(response.id, stream=True)]
    assert events[-1].type == "response.incomplete"
    assert events[-1].response == cancelled


async def test_a_response_is_its_tenants_and_can_be_deleted(mesh: MeshProcesses, client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(model="simulated", input="mine", max_output_tokens=5)
    async with openai.AsyncOpenAI(base_url=f"{mesh.edge_url}/v1", api_key="other") as other:
        for attempt in (other.responses.retrieve, other.responses.cancel, other.responses.delete):
            with pytest.raises(openai.NotFoundError):
                await attempt(response.id)
        with pytest.raises(openai.BadRequestError, match="previous_response_id"):
            await other.responses.create(model="simulated", input="x", previous_response_id=response.id)
    await client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)


async def test_a_response_that_is_not_stored_cannot_be_had_again(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(model="simulated", input="secret", store=False, max_output_tokens=5)
    assert response.output_text
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)


async def test_a_response_follows_another_with_its_whole_conversation(client: openai.AsyncOpenAI) -> None:
    first = await client.responses.create(model="simulated", input="one", instructions="Be brief.", max_output_tokens=8)
    second = await client.responses.create(
        model="simulated", input="two", previous_response_id=first.id, max_output_tokens=8
    )
    third = await client.responses.create(
        model="simulated", input="three", previous_response_id=second.id, max_output_tokens=8
    )
    said = await client.chat.completions.create(
        model="simulated",
        messages=[
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "two"},
            {"role": "assistant", "content": second.output_text},
            {"role": "user", "content": "three"},
        ],
        max_tokens=8,
    )
    assert third.output_text == said.choices[0].message.content
    assert third.previous_response_id == second.id


async def test_what_is_not_served_is_refused_with_the_field(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.responses.create(model="simulated", input="x", tools=[{"type": "web_search"}])
    assert refusal.value.param == "tools"
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="no-such-model", input="x", stream=True)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_nothing")
    response = await client.responses.create(model="simulated", input="x", max_output_tokens=2)
    for query in ({"starting_after": "x", "stream": "true"}, {"starting_after": "1"}, {"stream": "maybe"}):
        with pytest.raises(openai.BadRequestError):
            await client.responses.retrieve(response.id, extra_query=query)
