"""Fixtures that all tests share, and what every test is held to: no task outlives it, nothing is left out in CI.

`make test` runs test files side by side in several processes (pytest-xdist). Each has its own Valkey, meshes, folders and
ports, so that nothing is shared but the machine; who must have that to itself is marked `alone`. Files that share a mesh are
kept in one process (`tests/support/together.py`).
"""

from __future__ import annotations

import gc
import inspect
import os
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import settings
from redis.asyncio import Redis

from tests.support import vllm_server
from tests.support.alone import Machine
from tests.support.commands import Forks, forks_of_this_process
from tests.support.leaks import no_new_tasks
from tests.support.mesh import MeshProcesses
from tests.support.needs import LEFT_OUT, OPT_IN
from tests.support.valkey_server import ValkeyServer

_CI = os.environ.get("CI") == "true"
# These take minutes: CI runs them, and whoever names them or sets FULL=1.
_LONG = (
    "tests/chaos/",
    "tests/e2e/test_acceptance_drain.py",
    "tests/e2e/test_acceptance_limits.py",
    "tests/e2e/test_acceptance_overload.py",
    "tests/e2e/test_streamway_js.py",
    "tests/integration/test_edge_leaving.py",
    "tests/property/test_journal_protocol.py",
)
_LEFT_TO_CI = pytest.StashKey[int]()
# These want an engine of 3 GB: whoever names its folder runs them.
_VLLM = "tests/vllm/"
_MACHINE = pytest.StashKey[Machine]()
_LEFT_TO_VLLM = pytest.StashKey[int]()

# No deadline for an example, since machines are shared; in CI the same examples each time, so that a red run means a change.
settings.register_profile("streamway", deadline=None, derandomize=_CI)
settings.load_profile("streamway")
MeshProcesses.forks = staticmethod(forks_of_this_process)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the long tests to CI when everything is run, and those of a real vLLM to `make test-vllm`. Who must be alone comes
    last in his file."""
    place = {item.path: number for number, item in enumerate(items)}
    items.sort(key=lambda item: (place[item.path], _alone(item)))
    of_vllm = [] if vllm_server.FOLDER else [item for item in items if item.nodeid.startswith(_VLLM)]
    if of_vllm:
        config.hook.pytest_deselected(items=of_vllm)
        items[:] = [item for item in items if not item.nodeid.startswith(_VLLM)]
        config.stash[_LEFT_TO_VLLM] = len(of_vllm)
        if hasattr(config, "workeroutput"):
            config.workeroutput["left_to_vllm"] = len(of_vllm)
    named = any(str(argument).startswith(_LONG) or str(argument) == "tests/chaos" for argument in config.args)
    if _CI or named or os.environ.get("FULL") == "1":
        return
    long = [item for item in items if item.nodeid.startswith(_LONG)]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.nodeid.startswith(_LONG)]
        config.stash[_LEFT_TO_CI] = len(long)
        if hasattr(config, "workeroutput"):
            config.workeroutput["left_to_ci"] = len(long)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """What `--dist loadfile` means here."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.support.together import FilesTogether

    return FilesTogether(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every process of a parallel run has left out the same."""
    told = getattr(node, "workeroutput", {})
    node.config.stash[_LEFT_TO_CI] = told.get("left_to_ci", 0)
    node.config.stash[_LEFT_TO_VLLM] = told.get("left_to_vllm", 0)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: no search for garbage needs to go through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Before the test's time limit begins."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    # Each process has a folder of its own in that of the run.
    machine = item.config.stash.setdefault(_MACHINE, Machine(Path(item.config.getoption("basetemp")).parent))
    with machine.held(alone=_alone(item), next_alone=nextitem is not None and _alone(nextitem)):
        return (yield)


def _alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """One real Valkey for the whole run."""
    server = ValkeyServer(tmp_path_factory.mktemp("valkey"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def forks() -> Forks:
    """What `streamway` commands are forked from, `streamway up` of a mesh among them."""
    return forks_of_this_process()


@pytest.fixture(scope="session")
def vllm_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[vllm_server.VllmServers]:
    """Real vLLMs for the whole run; both are started when the first is wanted."""
    servers = vllm_server.VllmServers(tmp_path_factory.mktemp("vllm"))
    servers.begin(*vllm_server.KINDS)
    yield servers
    servers.close()


@pytest.fixture
async def valkey(valkey_server: ValkeyServer) -> AsyncIterator[Redis]:
    """A client on an empty database."""
    client = Redis.from_url(valkey_server.url)
    await client.flushdb()
    yield client
    await client.aclose()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store counts as silent after half a second. The 50 ms of a real one may go by on a machine that is busy."""
    monkeypatch.setattr("streamway.journal.channel.SILENCE_S", 0.5)
    monkeypatch.setattr("streamway.journal.writing.SILENCE_S", 0.5)


@pytest.fixture(autouse=True)
def no_task_outlives_a_test(request: pytest.FixtureRequest) -> None:
    """Comes before every other fixture of a test, so that its check comes after they have cleaned up."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        marker = request.node.get_closest_marker("asyncio")
        request.getfixturevalue(f"no_task_left_in_{marker.kwargs.get('loop_scope', 'function')}")


@pytest_asyncio.fixture(loop_scope="function")
async def no_task_left_in_function() -> AsyncIterator[None]:
    async with no_new_tasks():
        yield


@pytest_asyncio.fixture(loop_scope="module")
async def no_task_left_in_module() -> AsyncIterator[None]:
    """For tests whose module has one loop, in which something lives that they share."""
    async with no_new_tasks():
        yield


@pytest_asyncio.fixture(loop_scope="session")
async def no_task_left_in_session() -> AsyncIterator[None]:
    """For tests in the loop of the browser that they share."""
    async with no_new_tasks():
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """In CI a test that was left out for a missing package is a failure."""
    outcome = yield
    report = outcome.get_result()
    if _CI and report.skipped and LEFT_OUT in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: {report.longrepr[2]} (CI=true)"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each thing that is missing."""
    long = terminalreporter.config.stash.get(_LEFT_TO_CI, 0)
    if long:
        terminalreporter.write_line(
            f"{long} tests that take minutes (kills, cut networks, drains, limits): FULL=1 make test, and CI"
        )
    of_vllm = terminalreporter.config.stash.get(_LEFT_TO_VLLM, 0)
    if of_vllm:
        terminalreporter.write_line(f"{of_vllm} tests on a real vLLM (3.1 GB, some minutes): make test-vllm")
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        for why in (LEFT_OUT, OPT_IN):
            if why in str(report.longrepr):
                reason = why + str(report.longrepr[2]).partition(why)[2]
                reasons[reason] = reasons.get(reason, 0) + 1
    for reason, number in sorted(reasons.items()):
        terminalreporter.write_line(f"{reason} — {number} test{'s' if number > 1 else ''}")
