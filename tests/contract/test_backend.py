"""What every engine promises the adapter, held against each of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from benchmarks.simulated_engine import EngineServer
from scripts.install_model import model_path
from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.options import BackendOptions, EngineKind
from services.inference_adapter.interfaces import Backend
from streamway.errors import ContextLengthExceeded, EngineFailed, EngineOverloaded, EngineRejected, Malformed
from streamway.journal import ChoiceSoFar
from streamway.models.abilities import Ability
from streamway.runtime.process import StartError
from streamway.simulation.settings import SimulationSettings
from streamway.v1 import common_pb2
from tests.support import vllm_server
from tests.support.engines import Piece, RecordingSink
from tests.support.gguf_file import gguf

# An engine that several tests use lives in one loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

SIMULATION = SimulationSettings(slots=4, context_tokens=4096, decode_base_ms=2.0)


@dataclass
class Engine:
    """A started backend. `simulated`: it takes fault switches and makes the simulator's text. `vllm`: it is a real one."""

    backend: Backend
    simulated: bool
    vllm: bool = False

    @property
    def patience_s(self) -> float:
        """How soon a slot must be free: vLLM says so in its metrics with its next step."""
        return 5.0 if self.vllm else 0.5

    @property
    def model(self) -> str:
        return self.backend.info().models[0].name

    def request(self, prompt: str = "Name three fruits.", **body: object) -> common_pb2.GenerationRequest:
        """A request with an original body; the answer is as long as its limit allows, also llama.cpp's."""
        messages = [{"role": "user", "content": prompt}]
        made = {"model": self.model, "messages": messages, "stream": False, "ignore_eos": True, **body}
        return common_pb2.GenerationRequest(generation="g-1", model=self.model, openai_body=json.dumps(made).encode())

    async def run(self, prompt: str = "Name three fruits.", **body: object) -> RecordingSink:
        """One call until its end."""
        return await self.run_request(self.request(prompt, **body))

    async def run_request(self, request: common_pb2.GenerationRequest) -> RecordingSink:
        sink = RecordingSink()
        self.backend.call(request, sink)
        return await sink.wait()

    async def freed_within(self, seconds: float) -> None:
        """Waits until nothing runs."""
        began = time.monotonic()
        while (await self.backend.load()).running:
            assert time.monotonic() - began < seconds, "the engine still works"
            await asyncio.sleep(0.01)


# With fault switches; and those without.
SIMULATED = ["simulated", "http-tcp", "http-unix"]
# `make test-vllm` adds the real ones, which take minutes to start.
REAL = ["llamacpp", "llamacpp-inside", *(vllm_server.KINDS if vllm_server.FOLDER else ())]


@asynccontextmanager
async def started(name: str, request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Engine]:
    """An engine of that kind, and its server where it has one."""
    server: EngineServer | None = None
    if name in vllm_server.KINDS:
        url = (await request.getfixturevalue("vllm_servers").get(name)).url
        options = BackendOptions(kind="openai_http", url=url, slots=vllm_server.SLOTS, probe=False)
    elif name == "llamacpp":
        options = _llamacpp_options()
    elif name == "llamacpp-inside":
        options = _llamacpp_options().model_copy(update={"kind": "llamacpp_inside"})
    elif name == "simulated":
        options = BackendOptions(kind="simulated", simulation=SIMULATION)
    else:
        uds = str(folder / "engine.sock") if name == "http-unix" else ""
        server = EngineServer(SIMULATION, uds=uds)
        await server.start()
        options = BackendOptions(kind="openai_http", url=server.address, slots=4, pass_streamway_fields=True)
    backend = make_backend(options, "w-1")
    try:
        await backend.start()
        yield Engine(backend, simulated=name in SIMULATED, vllm=name in vllm_server.KINDS)
    finally:
        await backend.close()
        if server is not None:
            await server.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    """One for all tests of its kind: loading a model takes longer than what most ask of it."""
    async with started(request.param, request, tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest_asyncio.fixture(loop_scope="module")
async def engine(shared_engine: Engine) -> AsyncIterator[Engine]:
    """An engine that has nothing to do, and must have nothing left to do after the test."""
    assert (await shared_engine.backend.load()).running == 0
    yield shared_engine
    await shared_engine.freed_within(10)


@pytest.fixture
def simulated(engine: Engine) -> Engine:
    """An engine with fault switches."""
    assert engine.simulated
    return engine


@pytest_asyncio.fixture(loop_scope="module")
async def own_engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    """For a test that closes it."""
    async with started(request.param, request, tmp_path) as engine:
        yield engine


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every engine, or those with fault switches: no other is started for a test of these."""
    kinds = SIMULATED if "simulated" in metafunc.fixturenames else [*SIMULATED, *REAL]
    for name, scope in (("shared_engine", "module"), ("own_engine", "function")):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, kinds, indirect=True, scope=scope)


def _llamacpp_options() -> BackendOptions:
    path = model_path()
    if path is None:
        pytest.skip("left out: the model is not installed; run `python scripts/install_model.py`")
    return BackendOptions(kind="llamacpp", model_path=path, slots=2, context_tokens=1024, probe=False)


async def test_info_names_model_slots_and_context(engine: Engine) -> None:
    info = engine.backend.info()
    assert info.slots == (4 if engine.simulated else vllm_server.SLOTS if engine.vllm else 2)
    names = "simulated" if engine.simulated else vllm_server.MODEL if engine.vllm else "smollm2-135m-instruct"
    assert info.models[0].name == names
    assert info.models[0].context_tokens == (4096 if engine.simulated else 1024)
    assert (info.pid > 0) == (info.kind == "llamacpp")
    assert not info.elastic, "its slots are known"


async def test_what_an_engine_can_do_is_known(engine: Engine) -> None:
    known = engine.backend.info().capabilities
    assert known.profile == ("simulated" if engine.simulated else "vllm" if engine.vllm else "llamacpp")
    assert {Ability.CONTINUES, Ability.LOGPROBS, Ability.SEVERAL_CHOICES} <= known.can
    if engine.vllm:
        # Whether it was started so that it counts cached tokens and orders by priority is found by trying: tests/vllm.
        assert {Ability.CACHE_SALT, Ability.TOKEN_IDS, Ability.KV_USE} <= known.can
        assert not known.cannot
    else:
        assert Ability.CACHED_TOKENS in known.can
        assert {Ability.PRIORITY, Ability.CACHE_SALT} <= known.cannot


async def test_a_real_engine_is_found_to_do_what_its_table_says() -> None:
    backend = make_backend(_llamacpp_options().model_copy(update={"probe": True}), "w-1")
    try:
        await backend.start()
        known = backend.info().capabilities
    finally:
        await backend.close()
    assert known.tried >= {Ability.CONTINUES, Ability.GRAMMAR, Ability.TOOLS, Ability.LOGPROBS, Ability.CACHED_TOKENS}
    assert known.can >= {Ability.CONTINUES, Ability.GRAMMAR, Ability.LOGPROBS, Ability.CACHED_TOKENS, Ability.KV_USE}
    # The model's chat template has no tools: nothing but trying could have told.
    assert known.cannot >= {Ability.TOOLS, Ability.TOKEN_IDS}


async def test_where_nobody_says_how_many_slots_an_engine_has_the_number_is_a_guess() -> None:
    server = EngineServer(SIMULATION)
    await server.start()
    backend = make_backend(BackendOptions(kind="openai_http", url=server.address), "w-1")
    try:
        await backend.start()
        info = backend.info()
        assert (info.slots, info.elastic) == (64, True)
    finally:
        await backend.close()
        await server.close()


async def test_an_answer_comes_in_order_and_ends_once(engine: Engine) -> None:
    sink = await engine.run(max_tokens=12, temperature=0)
    assert sink.error is None
    assert sink.ended_count == 1
    assert sink.finish_reasons() == {0: "length"}
    assert len(sink.pieces) >= 12
    assert sink.text()


async def test_usage_is_the_engines_count(engine: Engine) -> None:
    sink = await engine.run(max_tokens=9)
    assert sink.usage is not None
    assert sink.usage.completion_tokens == 9
    assert sink.usage.prompt_tokens > 3


async def test_typed_fields_ask_the_same_as_a_body(engine: Engine) -> None:
    typed = common_pb2.GenerationRequest(model=engine.model)
    typed.messages.add(role="user", content="Count to ten.")
    typed.limits.max_tokens = 10
    typed.sampling.temperature = 0
    typed.sampling.seed = 5
    first = await engine.run_request(typed)
    second = await engine.run("Count to ten.", max_tokens=10, temperature=0, seed=5)
    assert first.text() == second.text() != ""
    assert first.usage is not None
    assert first.usage.completion_tokens == 10


async def test_a_repeated_prompt_is_found_in_the_kv_cache(engine: Engine) -> None:
    prompt = "The river carries light over the stones. " * 20
    await engine.run(prompt, max_tokens=2)
    again = await engine.run(prompt, max_tokens=2)
    assert again.usage is not None
    block = max(32, engine.backend.info().capabilities.kv_block_tokens)
    assert again.usage.prompt_tokens - block <= again.usage.cached_prompt_tokens < again.usage.prompt_tokens


async def test_the_sink_is_not_called_before_call_returns(engine: Engine) -> None:
    for request in (engine.request(max_tokens=1), common_pb2.GenerationRequest(model="m", openai_body=b"{")):
        sink = RecordingSink()
        engine.backend.call(request, sink)
        assert not sink.started_count
        assert sink.error is None
        await sink.wait()


async def test_a_body_that_is_no_json_is_malformed(engine: Engine) -> None:
    sink = await engine.run_request(common_pb2.GenerationRequest(model=engine.model, openai_body=b'{"messages": ['))
    assert isinstance(sink.error, Malformed)
    assert not sink.started_count


async def test_abort_while_tokens_flow_frees_the_slot_and_silences_the_sink(engine: Engine) -> None:
    sink = RecordingSink()
    call = engine.backend.call(engine.request("Tell a long story.", max_tokens=500), sink)
    await asyncio.wait_for(sink.first.wait(), 30)
    assert (await engine.backend.load()).running == 1
    call.abort()
    told = len(sink.pieces)
    call.abort()
    await engine.freed_within(engine.patience_s)
    await asyncio.sleep(0.05)
    assert len(sink.pieces) == told
    assert not sink.over.is_set()


async def test_abort_before_the_first_token_frees_the_slot(engine: Engine) -> None:
    sink = RecordingSink()
    # With its answer it fits every engine's context: 1,024 tokens of vLLM's, which takes two for the word.
    call = engine.backend.call(engine.request("stone " * 400, max_tokens=100), sink)
    await asyncio.sleep(0.02)
    call.abort()
    await engine.freed_within(engine.patience_s)
    assert not sink.over.is_set()


async def test_abort_at_once_is_as_if_nothing_was_asked(engine: Engine) -> None:
    sink = RecordingSink()
    engine.backend.call(engine.request(), sink).abort()
    await engine.freed_within(engine.patience_s)
    assert not sink.started_count
    assert sink.error is None


async def test_abort_from_inside_the_sink(engine: Engine) -> None:
    sink = RecordingSink()
    call = engine.backend.call(engine.request(max_tokens=200, n=2), sink)
    sink.on_piece = lambda _: call.abort()
    await asyncio.wait_for(sink.first.wait(), 30)
    await engine.freed_within(engine.patience_s)
    assert len(sink.pieces) == 1


async def test_more_calls_than_slots_all_end(engine: Engine) -> None:
    sinks = [RecordingSink() for _ in range(7)]
    for number, sink in enumerate(sinks):
        engine.backend.call(engine.request(f"Question {number}?", max_tokens=8), sink)
    for sink in sinks:
        await sink.wait()
        assert sink.finish_reasons() == {0: "length"}


async def test_several_choices_run_side_by_side(engine: Engine) -> None:
    sink = await engine.run(max_tokens=6, n=2, temperature=1.0)
    assert sink.finish_reasons() == {0: "length", 1: "length"}
    assert sink.text(0)
    assert sink.text(1)


async def test_a_stop_string_ends_the_answer_and_is_not_shown(engine: Engine) -> None:
    whole = (await engine.run("Count: 1, 2, 3,", max_tokens=40, temperature=0)).text()
    stop = whole[10:14]
    cut = await engine.run("Count: 1, 2, 3,", max_tokens=40, temperature=0, stop=[stop])
    assert cut.finish_reasons() == {0: "stop"}
    assert cut.text() == whole[: whole.index(stop)]


async def test_log_probabilities_reach_the_sink_as_json(engine: Engine) -> None:
    sink = await engine.run(max_tokens=4, logprobs=True, top_logprobs=1, temperature=0)
    raw = [json.loads(piece.raw_delta) for piece in sink.pieces if piece.raw_delta]
    assert raw
    assert all("index" not in one and "finish_reason" not in one for one in raw)
    content = [entry for one in raw if one.get("logprobs") for entry in one["logprobs"]["content"]]
    assert "".join(entry["token"] for entry in content) == sink.text()


async def test_a_prompt_beyond_the_context_is_told_as_such(engine: Engine) -> None:
    sink = await engine.run("word " * 8000, max_tokens=4)
    assert isinstance(sink.error, ContextLengthExceeded), sink.error
    assert not sink.pieces


async def test_a_field_the_engine_refuses_is_passed_on(engine: Engine) -> None:
    sink = await engine.run_request(
        common_pb2.GenerationRequest(model=engine.model, openai_body=b'{"messages": "no list"}')
    )
    assert isinstance(sink.error, EngineRejected)
    assert sink.error.metadata["engine_status"] == "400"
    assert sink.error.message


async def test_a_closed_backend_has_no_call_left(own_engine: Engine) -> None:
    sink = RecordingSink()
    own_engine.backend.call(own_engine.request(max_tokens=400), sink)
    await asyncio.wait_for(sink.first.wait(), 30)
    await own_engine.backend.close()
    told = len(sink.pieces)
    await asyncio.sleep(0.05)
    assert len(sink.pieces) == told
    assert not sink.over.is_set()


# With fault switches


async def test_a_forced_tool_call_comes_as_raw_deltas(simulated: Engine) -> None:
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    sink = await simulated.run(tools=tools, tool_choice="required")
    parts = [json.loads(piece.raw_delta)["delta"]["tool_calls"][0] for piece in sink.pieces]
    assert parts[0]["function"]["name"] == "weather"
    assert json.loads("".join(part["function"]["arguments"] for part in parts))["text"]
    assert sink.finish_reasons() == {0: "tool_calls"}
    assert not sink.text()


async def test_an_empty_answer_has_finish_reason_and_usage(simulated: Engine) -> None:
    sink = await simulated.run(streamway_faults={"answer_tokens": 0})
    assert sink.text() == ""
    assert sink.finish_reasons() == {0: "stop"}
    assert sink.usage is not None
    assert sink.usage.completion_tokens == 0


async def test_an_answer_goes_on_exactly_where_it_was_cut(simulated: Engine) -> None:
    whole = (await simulated.run("Go on.", max_tokens=30, seed=3)).pieces
    text = "".join(piece.text for piece in whole)
    for cut in (1, 7, 29):
        partial = "".join(piece.text for piece in whole[:cut])
        messages = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": partial}]
        rest = await simulated.run(messages=messages, max_tokens=30 - cut, seed=3)
        assert partial + rest.text() == text
        assert rest.finish_reasons() == {0: "length"}


async def goes_on(engine: Engine, whole: RecordingSink, cut: int, **body: object) -> RecordingSink:
    """A second call behind the first `cut` pieces of an answer."""
    made = whole.pieces[:cut]
    so_far = ChoiceSoFar(text="".join(piece.text for piece in made), units=len(made))
    sink = RecordingSink()
    engine.backend.call(engine.request(**body), sink, so_far)  # type: ignore[arg-type]
    return await sink.wait()


async def test_another_call_goes_on_exactly_where_the_first_was_cut(simulated: Engine) -> None:
    asked = {"prompt": "Go on.", "max_tokens": 30, "seed": 3}
    whole = await simulated.run(**asked)  # type: ignore[arg-type]
    assert whole.usage is not None
    for cut in (1, 7, 29):
        rest = await goes_on(simulated, whole, cut, **asked)
        made = "".join(piece.text for piece in whole.pieces[:cut])
        assert made + rest.text() == whole.text()
        assert rest.finish_reasons() == {0: "length"}
        assert rest.usage is not None
        assert rest.usage.completion_tokens == whole.usage.completion_tokens


async def test_a_client_that_began_the_answer_itself_gets_the_rest_of_that(simulated: Engine) -> None:
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "I never said that"}]
    asked = {"messages": messages, "max_tokens": 12}
    whole = await simulated.run(**asked)  # type: ignore[arg-type]
    rest = await goes_on(simulated, whole, 5, **asked)
    assert rest.error is None
    assert len(rest.pieces) == 7


async def test_a_real_engine_goes_on_with_a_text_and_counts_it(engine: Engine) -> None:
    asked = {"prompt": "Count from one to twenty in words.", "max_tokens": 24, "temperature": 0}
    whole = await engine.run(**asked)  # type: ignore[arg-type]
    cut = 12
    rest = await goes_on(engine, whole, cut, **asked)
    assert rest.error is None
    made = "".join(piece.text for piece in whole.pieces[:cut])
    # Without randomness what follows is what would have followed.
    assert made + rest.text() == whole.text()
    assert rest.finish_reasons() == {0: "length"}
    assert whole.usage is not None
    assert rest.usage is not None
    assert rest.usage.completion_tokens == 24
    # What an engine makes of a text is not what it made the text of, token by token.
    assert abs(rest.usage.prompt_tokens - whole.usage.prompt_tokens) <= 8


@pytest.mark.parametrize(("status", "kind"), [(400, EngineRejected), (429, EngineOverloaded), (500, EngineFailed)])
async def test_an_error_status_is_told(simulated: Engine, status: int, kind: type[Exception]) -> None:
    sink = await simulated.run(streamway_faults={"status": status, "message": "because"})
    assert isinstance(sink.error, kind)
    assert "because" in sink.error.message
    assert ("w-1" in sink.error.message) == (status != 400)


@pytest.mark.parametrize("status", [429, 503])
async def test_an_engine_that_says_when_to_come_again_is_told_as_such(simulated: Engine, status: int) -> None:
    sink = await simulated.run(streamway_faults={"status": status, "retry_after_s": 7})
    assert isinstance(sink.error, EngineOverloaded)
    assert sink.error.retry_after_s == 7


@pytest.mark.parametrize("fault", ["die_at_token", "garbage_at_token"])
async def test_an_engine_that_breaks_is_a_failure_after_what_it_said(simulated: Engine, fault: str) -> None:
    sink = await simulated.run(max_tokens=20, streamway_faults={fault: 5})
    assert isinstance(sink.error, EngineFailed)
    assert "w-1" in sink.error.message
    assert len(sink.pieces) == 4
    assert (await simulated.backend.load()).running == 0


async def test_text_cut_inside_code_points_arrives_whole(simulated: Engine) -> None:
    plain = await simulated.run("河流", max_tokens=120, seed=7)
    cut = await simulated.run("河流", max_tokens=120, seed=7, streamway_faults={"split_utf8": True})
    assert cut.text() == plain.text()
    assert any(ord(char) > 0xFFFF for char in plain.text())


async def test_an_engine_that_does_not_count_gives_no_usage(simulated: Engine) -> None:
    sink = await simulated.run(max_tokens=3, streamway_faults={"no_usage": True})
    assert sink.ended_count == 1
    assert sink.usage is None


async def test_a_stall_and_a_late_first_token_hold_the_stream(simulated: Engine) -> None:
    times: list[float] = []

    def note(_: Piece) -> None:
        times.append(time.monotonic())

    sink = RecordingSink(on_piece=note)
    faults = {"first_token_delay_s": 0.6, "stall_at_token": 4, "stall_s": 0.6}
    began = time.monotonic()
    simulated.backend.call(simulated.request(max_tokens=6, streamway_faults=faults), sink)
    await sink.wait()
    # From the beginning on: the token before the stall may come late on a busy machine, and the gap is shorter then.
    assert times[0] - began >= 0.59
    assert times[3] - began >= 1.19


# llama.cpp alone


async def test_llamacpp_says_what_is_wrong_with_a_model_file(tmp_path: Path) -> None:
    for content, words in ((None, "there is no model file"), (b"nothing of the kind", "is not a GGUF file")):
        path = tmp_path / "model.gguf"
        if content is not None:
            path.write_bytes(content)
        backend = make_backend(BackendOptions(kind="llamacpp", model_path=path), "w-1")
        with pytest.raises(StartError, match=words) as refused:
            await backend.start()
        assert "\n" not in str(refused.value)
        await backend.close()


@pytest.mark.parametrize("kind", ["llamacpp", "llamacpp_inside"])
async def test_a_model_file_that_is_cut_short_stops_the_start(tmp_path: Path, kind: EngineKind) -> None:
    whole = _llamacpp_options().model_path
    assert whole is not None
    path = tmp_path / "cut.gguf"
    with whole.open("rb") as file:
        path.write_bytes(file.read(3_000_000))
    backend = make_backend(BackendOptions(kind=kind, model_path=path), "w-1")
    with pytest.raises(
        StartError, match=r"cut\.gguf cannot be used: it has .* bytes of .*: it is cut short; download it"
    ):
        await backend.start()
    await backend.close()


async def test_a_model_file_of_several_parts_must_have_them_all(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(gguf({"general.architecture": "llama"}))
    backend = make_backend(BackendOptions(kind="llamacpp", model_path=path), "w-1")
    with pytest.raises(StartError, match=r"no model file .*m-00002-of-00002\.gguf"):
        await backend.start()
    await backend.close()


@pytest.mark.parametrize("kind", ["llamacpp", "llamacpp_inside"])
async def test_what_llamacpp_cannot_load_stops_the_start(tmp_path: Path, kind: EngineKind) -> None:
    """A whole file, and no model in it."""
    _llamacpp_options()
    path = tmp_path / "empty.gguf"
    path.write_bytes(gguf({"general.architecture": "llama"}))
    backend = make_backend(BackendOptions(kind=kind, model_path=path), "w-1")
    with pytest.raises(StartError, match=r"cannot load .*empty\.gguf"):
        await backend.start()
    await backend.close()


@pytest.mark.parametrize("kind", ["llamacpp", "llamacpp_inside"])
async def test_a_context_that_overflows_in_mid_answer_ends_it_by_its_length(kind: str) -> None:
    options = _llamacpp_options().model_copy(update={"kind": kind, "slots": 1, "context_tokens": 256})
    backend = make_backend(options, "w-1")
    try:
        await backend.start()
        sink = await Engine(backend, simulated=False).run("word " * 190)
    finally:
        await backend.close()
    assert sink.error is None
    assert sink.finish_reasons() == {0: "length"}
    assert sink.usage is not None
    assert sink.usage.prompt_tokens + sink.usage.completion_tokens <= 256
    assert sink.usage.completion_tokens > 1


async def test_a_llamacpp_that_dies_is_noticed_and_its_calls_fail() -> None:
    backend = make_backend(_llamacpp_options(), "w-1")
    await backend.start()
    engine = Engine(backend, simulated=False)
    sink = RecordingSink()
    backend.call(engine.request("Tell a long story.", max_tokens=500), sink)
    await asyncio.wait_for(sink.first.wait(), 30)
    os.kill(backend.info().pid, signal.SIGKILL)
    await asyncio.wait_for(backend.failed(), 20)
    await sink.wait()
    assert isinstance(sink.error, EngineFailed)
    with pytest.raises(EngineFailed):
        await backend.load()
    await backend.close()
