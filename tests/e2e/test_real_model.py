"""The real thing: llama.cpp with the small instruct model of `make run`, through clients that are not ours."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import grpc.aio
import openai
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.support.clients import assert_positions_tile, frames, text_of
from tests.support.mesh import ENDS_SOON, MeshProcesses


@pytest.fixture(scope="module")
def real_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """llama.cpp with two slots."""
    processes = MeshProcesses(
        tmp_path_factory.mktemp("real"),
        engine="llamacpp",
        environment={**ENDS_SOON, "STREAMWAY_ADAPTER_SLOTS": "2"},
        start_s=120,
    )
    yield processes
    processes.close()


@pytest.fixture
async def sdk(real_mesh: MeshProcesses) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=real_mesh.edge_url + "/v1", api_key="none", max_retries=0, timeout=90)


async def model_of(sdk: openai.AsyncOpenAI) -> str:
    models = await sdk.models.list()
    return models.data[0].id


async def test_the_sdk_streams_and_counts(sdk: openai.AsyncOpenAI) -> None:
    async with sdk:
        stream = await sdk.chat.completions.create(
            model=await model_of(sdk),
            messages=[{"role": "user", "content": "Name the capital of France in one short sentence."}],
            max_tokens=40,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert "Paris" in text
    usage = [chunk.usage for chunk in chunks if chunk.usage]
    assert len(usage) == 1
    assert usage[0].prompt_tokens > 5
    assert 1 <= usage[0].completion_tokens <= 40


async def test_the_sdk_gets_a_whole_answer(sdk: openai.AsyncOpenAI) -> None:
    async with sdk:
        answer = await sdk.chat.completions.create(
            model=await model_of(sdk),
            messages=[{"role": "user", "content": "What is two plus two? Answer with the number."}],
            max_tokens=30,
            temperature=0,
        )
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_the_sdk_sees_our_errors_as_its_own(sdk: openai.AsyncOpenAI) -> None:
    async with sdk:
        with pytest.raises(openai.NotFoundError, match="no worker serves"):
            await sdk.chat.completions.create(model="nothing", messages=[{"role": "user", "content": "x"}])
        with pytest.raises(openai.BadRequestError):
            await sdk.chat.completions.create(model=await model_of(sdk), messages=[])


async def test_a_cancel_frees_the_slot_for_a_waiting_request(sdk: openai.AsyncOpenAI) -> None:
    """Both slots are busy with long answers; closing one lets a third request begin."""
    async with sdk:
        model = await model_of(sdk)

        async def begin(words: str, most: int) -> openai.AsyncStream[object]:
            return await sdk.chat.completions.create(  # type: ignore[return-value]
                model=model,
                messages=[{"role": "user", "content": words}],
                max_tokens=most,
                stream=True,
                extra_body={"ignore_eos": True},
            )

        first = await begin("Tell a very long story about the sea.", 1500)
        second = await begin("Tell a very long story about the mountains.", 1500)
        for stream in (first, second):
            async for chunk in stream:
                if chunk.choices[0].delta.content:  # type: ignore[attr-defined]
                    break
        waiting = asyncio.get_running_loop().create_task(begin("Say hello.", 8))
        await asyncio.sleep(1.0)
        await first.close()
        third = await asyncio.wait_for(waiting, 20)
        async with asyncio.timeout(20):
            async for chunk in third:
                if chunk.choices and chunk.choices[0].finish_reason:  # type: ignore[attr-defined]
                    break
        await second.close()
        await third.close()


async def test_an_independent_websocket_client_talks_to_it(real_mesh: MeshProcesses, sdk: openai.AsyncOpenAI) -> None:
    async with sdk, frames(real_mesh.websocket_url) as client:
        await client.open(
            "x",
            "Name a colour.",
            model=await model_of(sdk),
            params={"max_tokens": 20},
        )
        seen = await client.until("finished", "x", 60)
    assert text_of(seen).strip()
    assert_positions_tile(seen, "x")
    assert seen[1]["worker"] == "adapter-0"


async def test_grpc_by_reflection_alone(real_mesh: MeshProcesses, sdk: openai.AsyncOpenAI) -> None:
    """A client that has no generated code: it asks the router for its own contracts, as grpcurl does."""
    async with sdk, grpc.aio.insecure_channel(real_mesh.address("router-0")) as channel:
        pool = descriptor_pool.DescriptorPool()
        await _learn(channel, pool, "streamway.v1.RouterService")
        method = pool.FindServiceByName("streamway.v1.RouterService").FindMethodByName("Generate")
        request_class = message_factory.GetMessageClass(method.input_type)
        response_class = message_factory.GetMessageClass(method.output_type)
        call = channel.unary_stream(
            "/streamway.v1.RouterService/Generate",
            request_serializer=request_class.SerializeToString,
            response_deserializer=response_class.FromString,
        )
        words = {
            "model": await model_of(sdk),
            "messages": [{"role": "user", "content": "Hi"}],
            "limits": {"maxTokens": 8},
        }
        request = json_format.ParseDict({"request": words}, request_class())
        kinds: list[str] = []
        async for response in call(request):
            kinds += [event.WhichOneof("event") for event in response.events]
    assert kinds[0] == "accepted"
    assert kinds[1] == "started"
    assert kinds[-1] == "finished"
    assert "token" in kinds


async def _learn(channel: grpc.aio.Channel, pool: descriptor_pool.DescriptorPool, symbol: str) -> None:
    """Fetches the file of `symbol` and all it imports into `pool`."""
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    known: dict[str, descriptor_pb2.FileDescriptorProto] = {}

    async def fetch(**what: str) -> list[descriptor_pb2.FileDescriptorProto]:
        async def one() -> object:
            yield reflection_pb2.ServerReflectionRequest(**what)

        async for reply in stub.ServerReflectionInfo(one()):
            return [
                descriptor_pb2.FileDescriptorProto.FromString(raw)
                for raw in reply.file_descriptor_response.file_descriptor_proto
            ]
        return []

    waiting = await fetch(file_containing_symbol=symbol)
    while waiting:
        file = waiting.pop()
        if file.name not in known:
            known[file.name] = file
            for name in file.dependency:
                if name not in known:
                    waiting += await fetch(file_by_filename=name)

    def add(name: str) -> None:
        file = known.pop(name, None)
        if file is not None:
            for needed in file.dependency:
                add(needed)
            pool.Add(file)

    for name in list(known):
        add(name)


async def test_the_engine_dies_with_its_adapter(real_mesh: MeshProcesses, sdk: openai.AsyncOpenAI) -> None:
    engine = real_mesh.pid_of("engine-0")
    old = real_mesh.kill("adapter-0")
    async with sdk:
        async with asyncio.timeout(20):
            while subprocess.run(
                ["ps", "-p", str(engine), "-o", "stat="], capture_output=True, check=False
            ).stdout.strip():
                await asyncio.sleep(0.1)
        await real_mesh.restarted("adapter-0", old, 60)
        # The supervisor asks the new adapter for its engine a moment after it is ready.
        async with asyncio.timeout(20):
            while real_mesh.pid_of("engine-0") == engine:
                await asyncio.sleep(0.1)


def test_streamway_chat_answers_in_a_terminal(real_mesh: MeshProcesses) -> None:
    command = [sys.executable, "-m", "services.supervisor", "chat", "--router", real_mesh.address("router-0")]
    done = subprocess.run(
        [*command, "--max-tokens", "30", "Say hello."],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
