"""A service process: exit codes, drain on a signal, and the second signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time

import pytest

PROGRAM = """
import asyncio, sys
from streamway.runtime.process import StartError, run

class Service:
    async def start(self):
        {start}
        print("started", flush=True)
    async def failed(self):
        {failed}
    async def drain(self):
        print("draining", flush=True)
        {drain}
    async def close(self):
        print("closed", flush=True)

run(Service)
"""


def start(start: str = "pass", failed: str = "await asyncio.Event().wait()", drain: str = "pass") -> subprocess.Popen:
    program = textwrap.dedent(PROGRAM).format(start=start, failed=failed, drain=drain)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_exits_with_0(number: signal.Signals) -> None:
    process = start()
    assert process.stdout.readline() == "started\n"
    process.send_signal(number)
    code, out, err = ended(process)
    assert (code, out, err) == (0, "draining\nclosed\n", "")


def test_what_a_service_starts_with_is_never_searched_for_cycles() -> None:
    process = start(drain="import gc; print(gc.get_freeze_count() > 1000, gc.get_threshold()[0] > 700)")
    process.stdout.readline()
    process.terminate()
    assert ended(process)[1] == "draining\nTrue True\nclosed\n"


def test_the_second_signal_exits_at_once_with_128_and_its_number() -> None:
    process = start(drain="await asyncio.Event().wait()")
    process.stdout.readline()
    process.terminate()
    assert process.stdout.readline() == "draining\n"
    process.terminate()
    assert ended(process)[0] == 128 + signal.SIGTERM


def test_a_refused_start_is_one_line_and_exit_code_2() -> None:
    code, out, err = ended(start(start='raise StartError("port 1 is not free; set another")'))
    assert (code, out) == (2, "closed\n")
    assert err == "cannot start: port 1 is not free; set another\n"


def test_a_signal_while_starting_stops_the_start() -> None:
    process = start(start='print("starting", flush=True); await asyncio.Event().wait()')
    assert process.stdout.readline() == "starting\n"
    began = time.monotonic()
    process.terminate()
    code, out, _ = ended(process)
    assert (code, out) == (0, "closed\n")
    assert time.monotonic() - began < 10


def test_a_part_that_fails_ends_the_process_with_1_and_says_why() -> None:
    code, out, err = ended(start(failed='raise ValueError("the engine is gone")'))
    assert (code, out.splitlines()[-1]) == (1, "closed")
    assert "the engine is gone" in out + err
