"""`streamway.client` against a mesh."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest

from streamway.client import Client, Stream
from streamway.errors import Cancelled, GenerationNotFound, ModelNotFound, RouterUnavailable
from tests.support.mesh import MeshProcesses
from tests.support.ports import free_port
from tests.support.proxy import proxy_to

pytestmark = pytest.mark.timeout(120)
LONG: dict[str, Any] = {"model": "simulated", "max_tokens": 300, "cache": 1, "seed": 3}


async def test_a_client_asks_and_is_told_everything(mesh: MeshProcesses) -> None:
    async with Client(mesh.address("router-0")) as client:
        assert await client.models() == ["simulated"]
        async with client.generate("Hello", model="simulated", max_tokens=20) as stream:
            pieces = [text async for text in stream]
        assert "".join(pieces) == stream.text != ""
        assert stream.finished is not None
        assert stream.finished.usage.completion_tokens == 20
        assert stream.accepted is not None
        assert len(stream.trace) == 32
        talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
        async with client.generate(talk, model="simulated", max_tokens=5) as stream:
            assert await stream.answer()
        with pytest.raises(ModelNotFound):
            async with client.generate("Hello", model="nobody-serves-it") as stream:
                await stream.answer()


async def test_an_answer_is_gone_on_with_by_another_client_and_cancelled_by_a_third(mesh: MeshProcesses) -> None:
    address = mesh.address("router-0")
    async with Client(address) as first, Client(address) as second, Client(address) as third:
        async with first.generate("Come back", **LONG) as stream:
            async for _ in stream:
                break
        head, cursor = stream.text, str(stream.cursor)
        async with second.resume(stream.generation, cursor) as rest:
            tail = await rest.answer()
        async with third.resume(stream.generation) as again:
            assert await again.answer() == head + tail
        async with first.generate("Stop", **LONG) as stream:
            with pytest.raises(Cancelled):
                async for _ in stream:
                    await third.cancel(stream.generation)
        with pytest.raises(GenerationNotFound):
            async with first.resume("0197a5c2-77f1-7d0a-8c53-0b6f0d4b0c11") as stream:
                await stream.answer()


async def test_many_streams_share_a_call_and_one_that_is_left_is_cancelled(mesh: MeshProcesses) -> None:
    async with Client(mesh.address("router-0")) as client, client.many() as many:

        async def one(number: int) -> Stream:
            async with many.generate(f"Question {number}", model="simulated", max_tokens=10) as stream:
                await stream.answer()
            return stream

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(number)) for number in range(60)]
            async with many.generate("Left", **LONG) as left:
                async for _ in left:
                    break
        streams = [task.result() for task in tasks]
        assert len({stream.generation for stream in streams}) == 60
        assert all(stream.text and stream.finished is not None for stream in streams)
        async with client.resume(left.generation) as ended:
            with pytest.raises(Cancelled):
                await ended.answer()


async def test_streams_outlive_the_connection_they_came_on(mesh: MeshProcesses) -> None:
    async with Client(mesh.address("router-0")) as client, client.generate("Cut", **LONG) as stream:
        alone = await stream.answer()
    async with proxy_to(f"http://{mesh.address('router-0')}") as proxy, Client(urlsplit(proxy.url).netloc) as client:
        async with client.generate("Cut", **LONG) as stream:
            cut = False
            async for _ in stream:
                if not cut and len(stream.text) > 60:
                    proxy.cut()
                    cut = True
        assert (stream.text, cut) == (alone, True)
        async with client.many() as many, many.generate("Cut", **LONG) as one, many.generate("Cut", **LONG) as two:
            async for _ in one:
                if cut and len(one.text) > 60:
                    proxy.cut()
                    cut = False
            assert (await two.answer(), one.text, cut) == (alone, alone, False)


async def test_a_router_that_is_not_there_is_told_in_time() -> None:
    async with Client(f"127.0.0.1:{free_port()}", patience_s=0.5) as client:
        with pytest.raises(RouterUnavailable):
            await client.models()
        with pytest.raises(RouterUnavailable):
            async with client.generate("Hello", model="m") as stream:
                await stream.answer()
        async with client.many() as many:
            with pytest.raises(RouterUnavailable):
                async with many.generate("Hello", model="m") as stream:
                    await stream.answer()
