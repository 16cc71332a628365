"""What a service would run with: its own answer to `--print-config`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from services.supervisor.io.starting import Launch, Spawner, Starter
from streamway.runtime.process import StartError


async def effective(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], starter: Starter | None = None
) -> dict[str, Any]:
    """The settings of `python -m module arguments` by section, secrets masked. Raises StartError with its complaint."""
    command = [sys.executable, "-m", module, *arguments, "--print-config"]
    (output, its_output), (errors, its_errors) = os.pipe(), os.pipe()
    try:
        process = await (starter or Spawner()).start(Launch(command, environment, its_output, its_errors))
    except BaseException:
        os.close(output)
        os.close(errors)
        raise
    finally:
        os.close(its_output)
        os.close(its_errors)
    try:
        async with asyncio.TaskGroup() as group:
            said, complaint = group.create_task(_read(output)), group.create_task(_read(errors))
        code = await process.wait()
    except asyncio.CancelledError:
        process.signal(signal.SIGKILL)
        raise
    if code != 0:
        raise StartError(
            complaint_of(complaint.result().decode(errors="replace").splitlines()) or f"{module} does not start"
        )
    shown: dict[str, Any] = json.loads(said.result())
    return shown


async def _read(descriptor: int) -> bytes:
    """All that comes from a pipe, which is closed then."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        return await reader.read()
    finally:
        transport.close()


def complaint_of(lines: Sequence[str]) -> str:
    """The one line in which a process said why it cannot start; else its last line."""
    spoken = [line.strip() for line in lines if line.strip()]
    for line in reversed(spoken):
        if line.startswith("cannot start: "):
            return line.removeprefix("cannot start: ")
    return spoken[-1] if spoken else ""
