// What is kept of an answer from its events.

import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.localStorage = { getItem: () => null };
Object.defineProperty(globalThis, "navigator", { value: { language: "en" }, configurable: true });
const { take, traceOf } = await import("../../services/edge/static/facts.js");

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";

function answered(...events) {
  const turn = { text: "", state: "live", facts: {} };
  const clock = { asked: performance.now(), first: 0, units: 0, before: 0 };
  const said = events.map((event) => take(turn, event, clock)).filter(Boolean);
  return { ...turn, said };
}

test("an answer with a takeover has both workers, its tokens by positions, and says so once", () => {
  const turn = answered(
    { type: "accepted", worker: "a", cache: "miss", durability: "relaxed", traceparent: `00-${TRACE}-00f067aa0ba902b7-01` },
    { type: "started", worker: "a" }, { type: "token", position: 5, first_position: 3, text: "one " },
    { type: "taken_over", worker: "b", from_worker: "a" }, { type: "token", position: 7, text: "two" },
    { type: "finished", finish_reason: "length" },
  );
  assert.deepEqual(turn.said, ["said.taken"]);
  assert.equal(turn.text, "one two");
  assert.equal(turn.state, "done");
  const { worker, takenFrom, tokens, finish, trace, durable } = turn.facts;
  assert.deepEqual({ worker, takenFrom, tokens, finish, trace, durable }, { worker: "b", takenFrom: "a", tokens: 4, finish: "length", trace: TRACE, durable: true });
});

test("an answer from the cache says what it comes from and what it saved", () => {
  const { facts } = answered({ type: "accepted", cache: "pending" }, { type: "started", cache: "semantic", cache_hit: { entry: "e", saved_tokens: 9, saved_money: 0.5 } });
  assert.deepEqual([facts.cache, facts.entry, facts.saved, facts.savedMoney], ["semantic", "e", 9, 0.5]);
});

test("what an answer cost is kept as it was told, and nothing where it was not", () => {
  const ended = (usage) => answered({ type: "finished", finish_reason: "stop", usage }).facts.cost;
  assert.deepEqual([ended({ cost: 0.25 }), ended({ cost: 0, from_cache: true }), ended({}), ended(undefined)], [0.25, 0, undefined, undefined]);
});

test("a cancel is a stop, anything else a failure with its reason", () => {
  assert.equal(answered({ type: "error", reason: "cancelled", message: "" }).state, "stopped");
  const failed = answered({ type: "error", reason: "worker_lost", message: "gone" });
  assert.deepEqual([failed.state, failed.error], ["failed", { reason: "worker_lost", message: "gone" }]);
});

test("only a trace that is recorded has a link", () => {
  assert.equal(traceOf(`00-${TRACE}-00f067aa0ba902b7-01`), TRACE);
  assert.equal(traceOf(`00-${TRACE}-00f067aa0ba902b7-00`), "");
  assert.equal(traceOf("00-javascript:alert(1)-00f067aa0ba902b7-01"), "");
  assert.equal(traceOf(undefined), "");
});
