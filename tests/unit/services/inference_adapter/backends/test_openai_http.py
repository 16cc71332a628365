"""The HTTP backend against servers that behave badly, one way at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from services.inference_adapter.backends.openai_http.backend import OpenAIHTTPBackend
from services.inference_adapter.backends.openai_http.sweep import Sweep
from services.inference_adapter.backends.options import BackendOptions
from streamway.errors import ContextLengthExceeded, EngineFailed, EngineRejected
from streamway.runtime.process import StartError
from streamway.v1 import common_pb2
from tests.support.busy import wanting
from tests.support.engines import CLOSE, RecordingSink, ScriptedServer, event_stream, status
from tests.support.ports import free_port

TOKEN = '{"choices":[{"index":0,"delta":{"content":"a"}}]}'
END = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'


class Read:
    """What reads the answers of backends made here; None: each is read as it comes."""

    by: Sweep | None = None


@pytest.fixture(autouse=True, params=["as it comes", "by the clock"])
async def reading(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """What an engine does wrong is told the same however it is read."""
    if request.param == "as it comes":
        yield
        return
    Read.by = sweep = Sweep(0.1, wanting(0.9))
    sweep.drive(lambda: None)

    async def tick() -> None:
        while True:
            sweep.read()
            await asyncio.sleep(0.002)

    ticking = asyncio.create_task(tick())
    yield
    ticking.cancel()
    Read.by = None
    sweep.close()


def backend_of(url: str, **options: object) -> OpenAIHTTPBackend:
    wanted = BackendOptions.model_validate({"kind": "openai_http", "url": url, **options})
    return OpenAIHTTPBackend(wanted, "w-1", sweep=Read.by)


async def ask(server: ScriptedServer, body: bytes = b"{}", **options: object) -> RecordingSink:
    """One call that is answered with what the server was given."""
    backend = backend_of(server.url, **options)
    sink = RecordingSink()
    backend.call(common_pb2.GenerationRequest(generation="g", model="m", openai_body=body), sink)
    await sink.wait(10)
    await backend.close()
    return sink


async def answered(*answer: bytes) -> RecordingSink:
    async with ScriptedServer(list(answer)) as server:
        return await ask(server)


def failure(sink: RecordingSink) -> str:
    assert isinstance(sink.error, EngineFailed)
    assert "w-1" in sink.error.message
    return sink.error.message


async def test_vllm_style_finish_rides_on_the_last_piece() -> None:
    last = (
        '{"choices":[{"index":0,"delta":{"content":"b"},"logprobs":null,"finish_reason":"length","stop_reason":null}]}'
    )
    sink = await answered(*event_stream(TOKEN, last))
    assert [(piece.text, piece.finish_reason) for piece in sink.pieces] == [("a", ""), ("b", "length")]


async def test_llamacpp_style_finish_comes_alone_and_role_chunks_are_skipped() -> None:
    role = '{"choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}'
    usage = (
        '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8},'
        '"completion_tokens_details":{"reasoning_tokens":3}},"timings":{"cache_n":8}}'
    )
    sink = await answered(*event_stream(role, TOKEN, END, usage))
    assert [(piece.text, piece.finish_reason) for piece in sink.pieces] == [("a", ""), ("", "stop")]
    assert sink.usage == common_pb2.Usage(
        prompt_tokens=9, completion_tokens=1, cached_prompt_tokens=8, reasoning_tokens=3
    )


async def test_what_is_not_plain_text_reaches_the_sink_as_json() -> None:
    reasoning = '{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}'
    novelty = '{"choices":[{"index":0,"delta":{"content":"x","mood":{"glad":1}},"finish_reason":null}]}'
    empty = '{"choices":[{"index":0,"delta":{"content":"","mood":null,"tool_calls":[]}}]}'
    sink = await answered(*event_stream(reasoning, novelty, empty, END))
    raw = [(piece.text, json.loads(piece.raw_delta)) for piece in sink.pieces if piece.raw_delta]
    assert raw == [
        ("", {"delta": {"reasoning_content": "hm"}}),
        ("x", {"delta": {"content": "x", "mood": {"glad": 1}}}),
    ]
    assert len(sink.pieces) == 3


async def test_token_ids_are_handed_on() -> None:
    sink = await answered(*event_stream('{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[5,6]}]}', END))
    assert sink.pieces[0].token_ids == (5, 6)


async def test_ids_of_tokens_without_a_text_of_their_own_come_with_the_text_that_they_began() -> None:
    half = '{"choices":[{"index":0,"delta":{},"token_ids":[7]}]}'
    other = '{"choices":[{"index":1,"delta":{"content":"b"},"token_ids":[1]}]}'
    whole = '{"choices":[{"index":0,"delta":{"content":"é"},"token_ids":[8]}]}'
    last = '{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop","token_ids":[9]}]}'
    end = '{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}'
    sink = await answered(*event_stream(half, half, other, whole, half, last, end))
    assert [(piece.choice, piece.text, piece.token_ids) for piece in sink.pieces] == [
        (1, "b", (1,)),
        (0, "é", (7, 7, 8)),
        (0, "", (7, 9)),
        (1, "", ()),
    ]


async def test_an_end_without_done_counts_when_every_choice_has_its_reason() -> None:
    assert (await answered(*event_stream(TOKEN, END, end=""))).error is None


@pytest.mark.parametrize(
    "answer",
    [
        event_stream(TOKEN),
        event_stream(TOKEN, end=""),
        event_stream(),
        event_stream(TOKEN, '{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}'),
    ],
    ids=["no finish reason", "cut", "empty", "one of two choices"],
)
async def test_an_answer_that_stops_in_the_middle_is_no_success(answer: list[bytes]) -> None:
    assert "middle" in failure(await answered(*answer))


@pytest.mark.parametrize(
    "event",
    [
        "<html>",
        "[]",
        '{"choices": 5}',
        '{"choices":[{"index":-1,"delta":{"content":"a"}}]}',
        '{"choices":[{"delta":{"content":["a"]}}]}',
        b'{"choices":[{"delta":{"content":"\xff',
    ],
)
async def test_garbage_in_the_stream_is_a_failure(event: str | bytes) -> None:
    assert "garbage" in failure(await answered(*event_stream(event)))


async def test_text_after_the_finish_reason_is_garbage() -> None:
    assert "garbage" in failure(await answered(*event_stream(END, TOKEN)))


async def test_an_event_without_end_is_a_failure() -> None:
    head, _ = event_stream()
    assert "larger than" in failure(await answered(head, b"data: " + b"x" * (5 * 1024 * 1024)))


async def test_an_error_inside_the_stream_is_told() -> None:
    late = await answered(*event_stream(TOKEN, '{"error":{"message":"no memory left","code":500}}'))
    assert "no memory left" in failure(late)
    refused = await answered(*event_stream('{"error":{"message":"no such tool","type":"x","code":400}}'))
    assert isinstance(refused.error, EngineRejected)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error":{"message":"bad tool","type":"invalid_request_error","code":400}}', "bad tool"),
        ('{"object":"error","message":"bad tool","code":400}', "bad tool"),
        ('{"detail":[{"loc":["body","n"]}]}', '[{"loc": ["body", "n"]}]'),
        ("just words", "just words"),
        ("", "the engine answered 400"),
        ("x" * 100_000, "x" * 2000),
    ],
)
async def test_a_refusal_passes_the_message_on(body: str, message: str) -> None:
    sink = await answered(*status(400, body))
    assert isinstance(sink.error, EngineRejected)
    assert sink.error.message == message
    assert not sink.started_count


@pytest.mark.parametrize(
    "body",
    [
        '{"error":{"code":400,"message":"request (900 tokens) is too large","type":"exceed_context_size_error"}}',
        '{"error":{"message":"This model\'s maximum context length is 1024 tokens.","type":"BadRequestError","code":400}}',
        '{"error":{"message":"too long","code":"context_length_exceeded"}}',
    ],
    ids=["llama.cpp", "vLLM", "OpenAI"],
)
async def test_each_engines_word_for_a_full_context_is_known(body: str) -> None:
    assert isinstance((await answered(*status(400, body))).error, ContextLengthExceeded)


async def test_our_own_credentials_are_not_the_clients_fault() -> None:
    said = failure(await answered(*status(401, '{"error":{"message":"key sk-123 is wrong"}}')))
    assert "engine_token" in said
    assert "sk-123" not in said


@pytest.mark.parametrize("code", [302, 500, 503])
async def test_other_statuses_are_failures(code: int) -> None:
    assert f"answered {code}" in failure(await answered(*status(code, "{}")))


async def test_an_error_after_a_good_status_is_what_it_says_it_is() -> None:
    sink = await answered(*status(200, '{"error":{"message":"bad tool","code":400}}'))
    assert isinstance(sink.error, EngineRejected)
    assert "bad tool" in sink.error.message
    assert not sink.started_count
    assert "it broke" in failure(await answered(*status(200, '{"error":{"message":"it broke"}}')))
    sink = await answered(
        *status(200, '{"object":"error","message":"too long","code":400,"type":"context_length_exceeded"}')
    )
    assert isinstance(sink.error, ContextLengthExceeded)


async def test_another_models_name_in_the_chunks_changes_nothing() -> None:
    """Servers tell a path, an alias, or what they resolved a name to: the text is the answer all the same."""
    named = '{"model":"somebody-else","choices":[{"index":0,"delta":{"content":"a"}}]}'
    sink = await answered(*event_stream(named, END))
    assert (sink.text(), sink.finish_reasons(), sink.error) == ("a", {0: "stop"}, None)


async def test_a_usage_that_is_none_spoils_no_answer_that_is_whole() -> None:
    for usage in ('{"prompt_tokens":-1}', '{"completion_tokens":"many"}', "7", "[1]", '{"prompt_tokens":1e30}'):
        sink = await answered(*event_stream(TOKEN, END, f'{{"choices":[],"usage":{usage}}}'))
        assert sink.error is None, usage
        assert sink.ended_count == 1
        assert sink.usage is None


async def test_a_json_answer_instead_of_a_stream_is_a_failure() -> None:
    sink = await answered(*status(200, '{"choices":[]}'))
    assert "application/json" in failure(sink)
    assert not sink.started_count


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "headers are larger"),
        (b"HTTP/1.1 200 OK\r\nContent-", "connection broke"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 900\r\n\r\ndata: ",
            "connection broke",
        ),
        (b"", "connection broke"),
    ],
)
async def test_what_is_no_http_is_a_failure(answer: bytes, words: str) -> None:
    assert words in failure(await answered(answer))


async def test_nobody_listening_is_a_failure() -> None:
    backend = backend_of(f"http://127.0.0.1:{free_port()}")
    sink = RecordingSink()
    backend.call(common_pb2.GenerationRequest(model="m", openai_body=b"{}"), sink)
    await sink.wait()
    await backend.close()
    assert "no connection" in failure(sink)


async def test_the_body_is_the_clients_with_three_things_set() -> None:
    body = b'{"model":"mine","stream":false,"seed":12345678901234567890,"stream_options":{"x":1},"streamway_faults":{}}'
    async with ScriptedServer(event_stream(TOKEN, END)) as server:
        await ask(server, body, engine_token="key")
        head, _, sent = server.requests[0].partition(b"\r\n\r\n")
    assert json.loads(sent) == {
        "model": "m",
        "stream": True,
        "seed": 12345678901234567890,
        "stream_options": {"x": 1, "include_usage": True},
    }
    assert b"Authorization: Bearer key" in head
    assert f"Content-Length: {len(sent)}".encode() in head


async def test_headers_cannot_be_injected() -> None:
    async with ScriptedServer(event_stream(TOKEN, END)) as server:
        backend, sink = backend_of(server.url), RecordingSink()
        evil = "b\r\nX: y"
        request = common_pb2.GenerationRequest(
            generation="a\r\nX: y", traceparent=evil, baggage=evil, openai_body=b"{}"
        )
        backend.call(request, sink)
        await sink.wait()
        await backend.close()
        assert b"X: y" not in server.requests[0]


async def test_the_engine_gets_what_is_left_of_the_baggage() -> None:
    async with ScriptedServer(event_stream(TOKEN, END)) as server:
        backend, sink = backend_of(server.url), RecordingSink()
        backend.call(common_pb2.GenerationRequest(baggage="team=blue,run=7%20x", openai_body=b"{}"), sink)
        await sink.wait()
        await backend.close()
        assert b"\r\nbaggage: team=blue,run=7%20x\r\n" in server.requests[0]


def chunked() -> list[bytes]:
    _, body = event_stream(TOKEN, END)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return [head, b"%x\r\n%b\r\n" % (len(body), body), b"0\r\n\r\n"]


async def call_twice(server: ScriptedServer, **options: object) -> list[RecordingSink]:
    backend = backend_of(server.url, **options)
    sinks = []
    for _ in range(2):
        sink = RecordingSink()
        backend.call(common_pb2.GenerationRequest(model="m", openai_body=b"{}"), sink)
        sinks.append(await sink.wait())
        await asyncio.sleep(0.05)
    await backend.close()
    return sinks


async def test_a_connection_is_used_again_when_the_setting_says_so() -> None:
    for keep_alive, connections in ((True, 1), (False, 2)):
        async with ScriptedServer(chunked(), close=False) as server:
            sinks = await call_twice(server, keep_alive=keep_alive)
            assert [sink.error for sink in sinks] == [None, None]
            assert server.connections == connections


async def test_a_kept_connection_that_the_engine_closed_costs_nothing() -> None:
    # The second request gets no byte: its connection is closed on it, as an idle one may be at any time.
    async with ScriptedServer(chunked(), CLOSE, chunked(), close=False) as server:
        sinks = await call_twice(server)
        assert [sink.error for sink in sinks] == [None, None]
        assert server.connections == 2
        assert len(server.requests) == 3


async def test_abort_closes_the_connection() -> None:
    head, body = event_stream(TOKEN, end="")
    async with ScriptedServer([head, body, *[b": ping\n\n"] * 100], pause_s=0.02) as server:
        backend, sink = backend_of(server.url), RecordingSink()
        call = backend.call(common_pb2.GenerationRequest(model="m", openai_body=b"{}"), sink)
        await asyncio.wait_for(sink.first.wait(), 20)
        call.abort()
        for _ in range(1000):
            if server.gone:
                break
            await asyncio.sleep(0.02)
        await backend.close()
        assert server.gone == 1
    assert not sink.over.is_set()


async def test_start_takes_the_models_and_maps_the_name() -> None:
    listed = status(200, '{"data":[{"id":"org/Model-7B","max_model_len":2048}]}')
    async with ScriptedServer(listed) as server:
        backend = backend_of(server.url, model_name="mine")
        await backend.start()
        assert backend.info().models[0].name == "mine"
        assert backend.info().models[0].context_tokens == 2048
        assert (await backend.load()).running == 0
        server._answers = [event_stream(TOKEN, END)]
        sink = RecordingSink()
        backend.call(common_pb2.GenerationRequest(model="mine", openai_body=b"{}"), sink)
        await sink.wait()
        await backend.close()
        assert b'"model":"org/Model-7B"' in server.requests[-1]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (status(401, "{}"), "engine_token"),
        (status(500, "{}"), "answered 500"),
        (status(200, "hello"), "list of models"),
        (status(200, '{"data":[]}'), "no model"),
        (status(200, '{"data":[{"id":"a"},{"id":"b"}]}'), "model_name"),
    ],
)
async def test_start_says_what_is_wrong(answer: list[bytes], words: str) -> None:
    async with ScriptedServer(answer) as server:
        backend = backend_of(server.url, model_name="mine", start_timeout_s=0.3)
        with pytest.raises(StartError, match=words):
            await backend.start()
        await backend.close()
