"""What a service would run with: its own answer to `--print-config`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from streamway.runtime.process import StartError


async def effective(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings of `python -m module arguments` by section, secrets masked. Raises StartError with its complaint."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments, "--print-config"),
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, complaint = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise StartError(complaint_of(complaint.decode(errors="replace").splitlines()) or f"{module} does not start")
    shown: dict[str, Any] = json.loads(output)
    return shown


def complaint_of(lines: Sequence[str]) -> str:
    """The one line in which a process said why it cannot start; else its last line."""
    spoken = [line.strip() for line in lines if line.strip()]
    for line in reversed(spoken):
        if line.startswith("cannot start: "):
            return line.removeprefix("cannot start: ")
    return spoken[-1] if spoken else ""
