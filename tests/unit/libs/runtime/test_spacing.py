"""Messages of a busy process wait for others to go with them."""

from __future__ import annotations

import asyncio
import time

import pytest

from streamway.runtime.spacing import Spacing
from tests.support.busy import wanting


def waits(spacing: Spacing) -> bool:
    """Whether a turn is not had at once."""
    turn = spacing.turn()
    try:
        turn.send(None)
    except StopIteration:
        return False
    turn.close()
    return True


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2])
async def test_while_there_is_little_to_do_nothing_waits(share: float) -> None:
    spacing = Spacing(0.1, wanting(share))
    assert not any(waits(spacing) for _ in range(100))


async def test_the_first_after_a_quiet_moment_goes_at_once_and_the_next_one_waits() -> None:
    spacing = Spacing(60.0, wanting(1.0))
    assert not waits(spacing)
    assert waits(spacing)


async def test_a_busy_process_sends_no_more_than_one_each_time() -> None:
    spacing = Spacing(0.05, wanting(1.0))
    await spacing.turn()
    began = time.monotonic()
    for _ in range(12):
        await spacing.turn()
    assert time.monotonic() - began >= 12 * 0.05 * 0.9


async def test_what_comes_while_one_waits_goes_with_it() -> None:
    spacing, sent, queue = Spacing(0.05, wanting(1.0)), [], list[int]()

    async def send() -> None:
        while sum(sent) < 100:
            await spacing.turn()
            sent.append(len(queue))
            queue.clear()

    sending = asyncio.create_task(send())
    for number in range(100):
        queue.append(number)
        await asyncio.sleep(0.002)
    await asyncio.wait_for(sending, 30)
    assert sum(sent) == 100
    assert len(sent) < 50


async def test_switched_off_nothing_ever_waits() -> None:
    spacing = Spacing(0.0, wanting(1.0))
    assert not any(waits(spacing) for _ in range(100))
