from __future__ import annotations

import asyncio

import pytest

from streamway.valkey.connection import blocking_client, connect
from tests.support.valkey_server import ValkeyServer


@pytest.mark.parametrize("steps", range(12))
async def test_a_command_can_be_cancelled_at_each_of_its_steps(valkey_server: ValkeyServer, steps: int) -> None:
    client = await connect(valkey_server.url)

    async def for_ever() -> None:
        while True:
            async with client.pipeline(transaction=False) as pipe:
                pipe.set("a", "b")
                pipe.get("a")
                await pipe.execute()

    task = asyncio.get_running_loop().create_task(for_ever())
    for _ in range(40 + steps):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=20)
    assert done, "the cancel was swallowed"
    assert await client.get("a") == b"b"
    task.cancel()
    await client.aclose()


async def test_a_blocking_read_can_be_cancelled_and_the_next_one_works(valkey_server: ValkeyServer) -> None:
    client = blocking_client(valkey_server.url)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.xread({"nothing": "0"}, block=10_000)
    assert await client.xread({"nothing": "0"}, block=10) in ([], {}, None)
    await client.aclose()
