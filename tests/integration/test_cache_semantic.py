"""The semantic level over a real channel with the bundled encoder: what it serves, what it refuses, what it learns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from services.cache.app import CacheApp
from services.cache.settings import CacheSettings
from streamway.config import SharedSettings
from streamway.rpc import open_channel
from streamway.rpc.channel import MESH_TOKEN_KEY
from streamway.runtime.start import StartError
from streamway.v1 import cache_pb2, cache_pb2_grpc, common_pb2
from tests.support.adapter_world import eventually
from tests.support.valkey_server import ValkeyServer
from tests.unit.services.cache.requests import answer, body, typed

EXACT, ALIKE = cache_pb2.CACHE_OUTCOME_HIT_EXACT, cache_pb2.CACHE_OUTCOME_HIT_SEMANTIC
MISS = cache_pb2.CACHE_OUTCOME_MISS
# None is audited, none compared.
QUIET = {"semantic_threshold": 0.92, "semantic_audit_share": 0, "semantic_compare_share": 0}


@pytest.fixture
async def start(valkey: Redis, valkey_server: ValkeyServer) -> AsyncIterator[Any]:
    stack: list[Any] = []

    async def make(shared: dict[str, Any] | None = None, **settings: Any) -> Any:
        common = SharedSettings(valkey_url=SecretStr(valkey_server.url), **(shared or {}))
        values = {**QUIET, **settings}
        app = CacheApp(CacheSettings(port=0, operations_port=0, encoder_timeout_s=5.0, **values), common)
        await app.start()
        channel = open_channel(app.address, common)
        stack.extend((app, channel))
        stub: Any = cache_pb2_grpc.CacheServiceStub(channel)
        stub.made = app
        return stub

    yield make
    for each in reversed(stack):
        await each.close()


def asks(text: str, generation: str = "g", **more: Any) -> common_pb2.GenerationRequest:
    request = typed(text, cache=common_pb2.CACHE_POLICY_SEMANTIC, generation=generation, **more)
    assert isinstance(request, common_pb2.GenerationRequest)
    return request


async def keep(stub: Any, request: common_pb2.GenerationRequest, *texts: str) -> str:
    """Stores an answer; gives the entry once it can be found by likeness."""
    stored = await stub.Store(cache_pb2.StoreRequest(request=request, events=answer(*texts)))
    assert stored.entry, stored.refused
    other = common_pb2.GenerationRequest()
    other.CopyFrom(request)
    # In quotation marks it is the nearest question, and not the same words to the level before.
    other.messages[-1].content = f'"{request.messages[-1].content}"'

    async def found() -> bool:
        explained = await stub.Explain(cache_pb2.ExplainRequest(request=other))
        return stored.entry in {each.entry for each in explained.candidates}

    await eventually(found, True)
    return str(stored.entry)


async def look(stub: Any, request: common_pb2.GenerationRequest) -> cache_pb2.LookupResponse:
    found: cache_pb2.LookupResponse = await stub.Lookup(cache_pb2.LookupRequest(request=request))
    return found


@pytest.mark.parametrize(
    ("stored", "same", "other"),
    [
        ("如何重置密码", "忘记密码怎么办", "如何修改邮箱"),
        ("How do I reset my password?", "How can I reset my password?", "How do I change my email address?"),
    ],
)
async def test_h3_a_paraphrase_hits_and_another_question_does_not(
    start: Any, stored: str, same: str, other: str
) -> None:
    stub = await start()
    entry = await keep(stub, asks(stored), "Click ", "the link.")
    found = await look(stub, asks(same))
    assert found.outcome == ALIKE
    assert (found.answer.entry, found.answer.finish_reason) == (entry, "stop")
    assert [event.token.text for event in found.answer.events] == ["Click ", "the link."]
    assert 0.92 <= found.answer.similarity < 1
    assert (await look(stub, asks(other))).outcome == MISS
    exact = await look(stub, asks(stored))
    assert (exact.outcome, exact.answer.similarity) == (EXACT, 1.0)


async def test_h3_only_who_asks_for_likeness_gets_it(start: Any) -> None:
    stub = await start()
    await keep(stub, asks("How do I reset my password?"), "So.")
    request = asks("How can I reset my password?")
    assert (await look(stub, request)).outcome == ALIKE
    request.cache = common_pb2.CACHE_POLICY_EXACT
    assert (await look(stub, request)).outcome == MISS


async def test_h1_the_context_must_be_the_same(start: Any) -> None:
    stub = await start()
    await keep(stub, asks("How do I reset my password?"), "So.")
    again = "How can I reset my password?"
    as_pirate = asks(again)
    as_pirate.messages.insert(0, common_pb2.Message(role="system", content="You are a pirate."))
    seeded = asks(again, sampling=common_pb2.Sampling(temperature=0, seed=1))
    for request in (asks(again, model="n"), seeded, as_pirate):
        assert (await look(stub, request)).outcome == MISS
    assert (await look(stub, asks(again))).outcome == ALIKE


async def test_h6_a_question_that_says_all_hits_behind_an_irrelevant_history_where_that_is_asked_for(
    start: Any,
) -> None:
    asked, same = "Is the gym in Leeds open on Christmas Day?", "Is the Leeds gym open on Christmas Day?"
    towels = ("user", "can I bring my own towel?"), ("assistant", "Please do, or hire one for 3 pounds at the desk.")
    lost = ("user", "is there a lost property office?"), ("assistant", "Yes, the desk keeps things for 30 days.")

    def behind(question: str, *turns: tuple[str, str], system: str = "Be brief.") -> common_pb2.GenerationRequest:
        request = asks(question)
        said = [common_pb2.Message(role=role, content=content) for role, content in (("system", system), *turns)]
        rest = list(request.messages)
        del request.messages[:]
        request.messages.extend([*said, *rest])
        return request

    stub = await start(semantic_history="self_contained", semantic_rules_off=["swap", "insertion", "order"])
    await keep(stub, behind(asked, *towels), "Yes, from ten to four.")
    assert (await look(stub, behind(same, *lost))).outcome == ALIKE
    assert (await look(stub, behind(same))).outcome == ALIKE
    assert (await look(stub, behind(same, *lost, system="Be kind."))).outcome == MISS
    # What needs the turns before has another answer behind other turns, and so has what repeats them.
    await keep(stub, behind("is it open on Christmas Day?", *towels), "Yes.")
    assert (await look(stub, behind("Is it open on Christmas Day?", *lost))).outcome == MISS
    locker, lockers = (
        "Which lockers does the gym in Leeds rent by the month?",
        "Which lockers does the Leeds gym rent by the month?",
    )
    await keep(stub, behind(locker, *lost), "Those of the 30 days.")
    assert (await look(stub, behind(lockers, *towels))).outcome == MISS
    assert (await look(stub, behind(lockers, *lost))).outcome == ALIKE

    equal = await start()
    await keep(equal, behind(asked, *towels), "Yes, from ten to four.")
    assert (await look(equal, behind(asked, *lost))).outcome == MISS


async def test_h1_tenants_never_share_and_a_claim_is_believed_only_with_the_mesh_token(start: Any) -> None:
    stub = await start(shared={"mesh_token": "x" * 32})
    mesh = ((MESH_TOKEN_KEY, "x" * 32),)
    again = cache_pb2.LookupRequest(request=asks("How can I reset my password?", tenant="a"))
    request = asks("How do I reset my password?", tenant="a")
    await stub.Store(cache_pb2.StoreRequest(request=request, events=answer("So.")), metadata=mesh)

    async def outcome(tenant: str) -> int:
        again.request.tenant = tenant
        return int((await stub.Lookup(again, metadata=mesh)).outcome)

    await eventually(lambda: outcome("a"), ALIKE)
    assert await outcome("b") == MISS
    # A field of the body is not who asks.
    said = {"messages": [{"role": "user", "content": "How can I reset my password?"}]}
    for claim, tenant, expected in ({}, "a", ALIKE), ({"tenant": "a"}, "b", MISS), ({"user": "a"}, "b", MISS):
        posing = body({**said, **claim}, cache=common_pb2.CACHE_POLICY_SEMANTIC, tenant=tenant)
        posing.ClearField("sampling")
        assert (await stub.Lookup(cache_pb2.LookupRequest(request=posing), metadata=mesh)).outcome == expected, claim


@pytest.mark.parametrize(
    ("stored", "asked", "rule"),
    [
        ("How do I enable notifications?", "How do I disable notifications?", "antonyms"),
        ("How do I book 2 rooms?", "How do I book 3 rooms?", "numbers"),
        ("Can I pay by card?", "Can't I pay by card?", "negation"),
        ("如何开启通知？", "如何关闭通知？", "antonyms"),
        ("How do I reset my password?", "如何重置我的登录密码？", "script"),
    ],
)
async def test_h2_a_near_question_with_another_meaning_is_refused_by_a_rule(
    start: Any, stored: str, asked: str, rule: str
) -> None:
    stub = await start(semantic_threshold=0.6)
    await keep(stub, asks(stored), "So.")
    assert (await look(stub, asks(asked))).outcome == MISS
    explained = await stub.Explain(cache_pb2.ExplainRequest(request=asks(asked)))
    assert explained.outcome == "miss"
    assert explained.candidates[0].reason == "refused"
    assert explained.candidates[0].findings[0].rule == rule
    stats = await stub.Stats(cache_pb2.StatsRequest(tenant="anonymous"))
    assert dict(stats.semantic.refused) == {rule: 1}


async def test_h6_an_audit_goes_to_a_worker_and_a_wrong_answer_raises_the_floor(start: Any) -> None:
    stub = await start(semantic_audit_share=1.0, semantic_compare_share=1.0)
    entry = await keep(stub, asks("How do I reset my password?"), "Click the link.")
    request = asks("How can I reset my password?")
    assert (await look(stub, request)).outcome == MISS
    fresh = await stub.Store(cache_pb2.StoreRequest(request=request, events=answer("Never do this.")))
    await eventually(lambda: _compared(stub), 1)
    stats = (await stub.Stats(cache_pb2.StatsRequest(tenant="anonymous"))).semantic
    assert (stats.asked, stats.audits, stats.hits, stats.wrong) == (1, 1, 0, 1)
    await stub.Invalidate(cache_pb2.InvalidateRequest(entry=fresh.entry))
    explained = await stub.Explain(cache_pb2.ExplainRequest(request=request))
    assert [(each.entry, each.reason) for each in explained.candidates] == [(entry, "below_entry_floor")]


async def _compared(stub: Any) -> int:
    return int((await stub.Stats(cache_pb2.StatsRequest(tenant="anonymous"))).semantic.compared)


async def test_h6_a_complaint_raises_the_floor_and_the_second_one_evicts(start: Any) -> None:
    stub = await start(semantic_threshold=0.9)
    entry = await keep(stub, asks("How do I reset my password?"), "So.")
    first = await look(stub, asks("How can I reset my password?"))
    assert first.outcome == ALIKE
    complaint = cache_pb2.FeedbackRequest(entry=entry, good=False)
    assert (await stub.Feedback(complaint)).known
    # It answers its own question still, but no longer that one.
    assert (await look(stub, asks("How do I reset my password?"))).outcome == EXACT
    assert (await look(stub, asks("How can I reset my password?"))).outcome == MISS
    explained = await stub.Explain(cache_pb2.ExplainRequest(request=asks("How can I reset my password?")))
    assert explained.candidates[0].reason == "below_entry_floor"


async def test_shadow_serves_nothing_and_counts(start: Any) -> None:
    stub = await start(semantic_shadow=True, semantic_compare_share=1.0)
    await keep(stub, asks("How do I reset my password?"), "So.")
    request = asks("How can I reset my password?")
    assert (await look(stub, request)).outcome == MISS
    await stub.Store(cache_pb2.StoreRequest(request=request, events=answer("So.")))
    await eventually(lambda: _compared(stub), 1)
    stats = (await stub.Stats(cache_pb2.StatsRequest(tenant="anonymous"))).semantic
    assert (stats.wrong, stats.hits) == (0, 0)


async def test_h6_a_burst_of_one_question_in_a_hundred_ways_is_one_entry_to_likeness(start: Any) -> None:
    stub = await start()
    first = await keep(stub, asks("How do I reset my password?"), "Click ", "the link.")
    for number in range(8):
        request = asks("How do I reset my password" + "?" * (number + 2))
        stored = await stub.Store(cache_pb2.StoreRequest(request=request, events=answer("Click ", "the link.")))
        assert stored.entry, "by its key it is found"
        await eventually(lambda: stub.made._answers._learning, 0)
    likeness = stub.made._answers.likeness
    assert likeness.near_duplicates >= 6, "punctuation moves a question by less than that mostly"
    assert len(likeness.partitions) == 9 - likeness.near_duplicates
    assert (await look(stub, asks("How do I reset my password???"))).outcome == EXACT
    assert (await look(stub, asks("How can I reset my password?"))).answer.entry == first
    # Another answer to nearly the same question is another entry.
    before = len(likeness.partitions)
    await stub.Store(cache_pb2.StoreRequest(request=asks("How do I reset my password.?"), events=answer("Ask Bob.")))
    await eventually(lambda: len(likeness.partitions), before + 1)


async def test_h6_what_was_made_for_one_user_is_given_to_others_once_it_was_right_for_one(start: Any) -> None:
    stub = await start(semantic_vouched=True)

    def by(user: str, text: str, generation: str) -> common_pb2.GenerationRequest:
        return asks(text, generation, metadata={"user": user})

    async def answered(user: str, text: str, generation: str, fresh: str) -> cache_pb2.LookupResponse:
        """Asks, and where the cache has nothing a worker answers."""
        found = await look(stub, by(user, text, generation))
        if found.outcome == MISS:
            request = by(user, text, generation)
            await stub.Store(cache_pb2.StoreRequest(request=request, events=answer(fresh)))
            await eventually(lambda: stub.made._answers._learning, 0)
        return found

    crafted = await keep(stub, by("mallory", "How do I reset my password?", "g"), "Send it to Mallory.")
    again = "How can I reset my password?"
    assert (await look(stub, by("mallory", again, "m"))).outcome == ALIKE, "whose it is gets it"
    explained = await stub.Explain(cache_pb2.ExplainRequest(request=by("alice", again, "e")))
    assert (explained.outcome, explained.reason) == ("audit", "unvouched")
    assert (await answered("alice", again, "a", "Click the link.")).outcome == MISS
    likeness = stub.made._answers.likeness
    assert likeness.standings.of("anonymous").wrong_hits.floor(crafted) is not None, "it was wrong for Alice"

    right = await keep(stub, by("bob", "How do I descale a kettle?", "b"), "Boil vinegar in it.")
    other = "How can I descale a kettle?"
    assert (await answered("carol", other, "c", "Boil vinegar in it.")).outcome == MISS
    found = await look(stub, by("dave", "How can I descale the kettle?", "d"))
    assert (found.outcome, found.answer.entry) == (ALIKE, right), "it was right for Carol"


@pytest.mark.parametrize("question", ["What is the weather like?", "Where is my order?", "x" * 100_000, " "])
async def test_h6_what_is_not_compared_is_neither_found_nor_indexed(start: Any, question: str) -> None:
    stub = await start()
    await stub.Store(cache_pb2.StoreRequest(request=asks(question), events=answer("So.")))
    assert (await look(stub, asks(question))).outcome == EXACT
    # Not the same words for the level before: what is quoted is not folded.
    other = question + (' "' if question.strip() else " ")
    explained = await stub.Explain(cache_pb2.ExplainRequest(request=asks(other)))
    assert (explained.outcome, explained.reason) == ("miss", "not_compared")


async def test_without_an_encoder_semantic_is_exact(start: Any) -> None:
    stub = await start(encoder="off")
    stored = await stub.Store(cache_pb2.StoreRequest(request=asks("How?"), events=answer("So.")))
    assert stored.entry
    assert (await look(stub, asks("How?"))).outcome == EXACT
    assert (await look(stub, asks("How so?"))).outcome == MISS
    explained = await stub.Explain(cache_pb2.ExplainRequest(request=asks("How so?")))
    assert explained.reason == "no_encoder"


async def test_an_encoder_that_is_away_costs_likeness_only(start: Any) -> None:
    stub = await start(encoder="http://127.0.0.1:1/v1", encoder_model="e5")
    await stub.Store(cache_pb2.StoreRequest(request=asks("How?"), events=answer("So.")))
    assert (await look(stub, asks("How?"))).outcome == EXACT
    assert (await look(stub, asks("How so?"))).outcome == MISS


async def test_a_folder_for_indexes_is_private_and_one_that_cannot_be_made_stops_the_start(
    start: Any, valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    await start(index_folder=str(tmp_path / "indexes"))
    assert (tmp_path / "indexes").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    settings = CacheSettings(port=0, operations_port=0, index_folder=str(tmp_path / "file" / "indexes"))
    app = CacheApp(settings, SharedSettings(valkey_url=SecretStr(valkey_server.url)))
    with pytest.raises(StartError, match="STREAMWAY_CACHE_INDEX_FOLDER"):
        await app.start()
    await app.close()


async def test_h6_the_ledger_of_a_tenant_balances_and_has_a_line_for_each_level(start: Any) -> None:
    stub = await start(price_prompt=1_000_000, price_completion=1_000_000, price_second=0)
    await keep(stub, asks("How do I reset my password?"), "Click ", "it.")
    for text in ("How do I reset my password?", "how do i reset my password", "How can I reset my password?"):
        await look(stub, asks(text))
    savings = (await stub.Stats(cache_pb2.StatsRequest(tenant="anonymous"))).savings
    lines = {line.name: line for line in savings.lines}
    assert [(lines[name].count, lines[name].tokens, lines[name].money) for name in ("exact", "folded", "semantic")] == [
        (1, 5, 5.0)
    ] * 3
    assert lines["embedding"].count > 0
    assert lines["embedding"].debit
    assert lines["embedding"].seconds > 0
    assert savings.balance.money == sum(-line.money if line.debit else line.money for line in savings.lines) == 15.0
    assert (await stub.Stats(cache_pb2.StatsRequest(tenant="other"))).savings.balance.tokens == 0


async def test_h6_a_level_that_costs_more_than_it_saves_is_not_asked_and_says_so(start: Any) -> None:
    stub = await start(price_second=1000, semantic_pay_window=10, semantic_pay_grace=10)
    await keep(stub, asks("How do I reset my password?"), "So.")
    again = asks("How can I reset my password?")
    for number in range(10):
        assert (await look(stub, asks(f"Which of the {number} boats left?"))).outcome == MISS
    assert (await look(stub, again)).outcome == MISS
    told = (await stub.Stats(cache_pb2.StatsRequest(tenant="anonymous"))).semantic
    assert told.state == "off"
    assert told.window_money < 0
    assert told.questions_left > 0
    # The other levels go on.
    assert (await look(stub, asks("How do I reset my password?"))).outcome == EXACT


async def test_what_was_refused_and_how_the_threshold_moved_is_told_with_details_only(start: Any) -> None:
    stub = await start()
    await keep(stub, asks("How do I enable two-factor login?"), "So.")
    assert (await look(stub, asks("How do I disable two-factor login?"))).outcome == MISS
    told = (await stub.Stats(cache_pb2.StatsRequest(tenant="anonymous", details=True))).semantic
    assert [(each.near, each.finding.rule) for each in told.near] == [("How do I enable two-factor login?", "antonyms")]
    assert told.history[0].threshold == pytest.approx(0.92)
    assert told.budget == pytest.approx(0.01)
    told = (await stub.Stats(cache_pb2.StatsRequest(tenant="anonymous"))).semantic
    assert (len(told.near), len(told.history)) == (0, 0)
