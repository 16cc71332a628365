// What becomes of the frames of one answer, whatever way and order they come in.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Answer } from "../../services/edge/static/answer.js";

const accepted = { type: "accepted", position: 1, generation: "g", cursor: "0-1" };
const started = { type: "started", position: 2, epoch: 1048999 };
const token = (position, text, first) => ({ type: "token", choice: 0, position, text, ...(first ? { first_position: first } : {}) });
const finished = (position) => ({ type: "finished", position });

function begun(...more) {
  const answer = new Answer();
  for (const frame of [accepted, started, ...more]) assert.equal(answer.take(frame), "deliver");
  return answer;
}

test("the cursor is the epoch that wrote last and the position", () => {
  const answer = new Answer();
  assert.equal(answer.cursor, "0-0");
  answer.take(accepted);
  assert.equal(answer.cursor, "0-1");
  answer.take(started);
  answer.take(token(5, "abc", 3));
  assert.equal(answer.cursor, "1048999-5");
  assert.equal(answer.text(), "abc");
  assert.equal(answer.generation, "g");
});

test("what comes again is dropped, what fits is delivered, and the text is whole", () => {
  const answer = begun(token(3, "a"), token(5, "bc", 4));
  for (const frame of [accepted, started, token(3, "a"), token(5, "bc", 4)]) assert.equal(answer.take(frame), "drop");
  assert.equal(answer.take(token(6, "d")), "deliver");
  assert.equal(answer.take(finished(7)), "deliver");
  assert.equal(answer.text(), "abcd");
  assert.equal(answer.take(finished(7)), "drop");
});

test("a gap, and a piece that is half known, ask for the rest", () => {
  const answer = begun(token(3, "a"));
  assert.equal(answer.take(token(5, "c")), "again");
  assert.equal(answer.take(token(4, "ab", 3)), "again");
  assert.equal(answer.cursor, "1048999-3");
});

test("a choice's end goes with the token before it", () => {
  const end = { type: "choice_finished", choice: 0, finish_reason: "stop" };
  const answer = begun(token(3, "a"));
  assert.equal(answer.take(end), "deliver");
  assert.equal(answer.take(token(3, "a")), "drop");
  assert.equal(answer.take(end), "drop");
});

test("a takeover goes on with the next position under another epoch", () => {
  const answer = begun(token(3, "a"));
  assert.equal(answer.take({ type: "taken_over", position: 4, epoch: 2097153 }), "deliver");
  answer.take(token(5, "b"));
  assert.equal(answer.cursor, "2097153-5");
  assert.equal(answer.text(), "ab");
});

test("a recovered resume is none of the reader's business", () => {
  const answer = begun(token(3, "a"));
  assert.equal(answer.take({ type: "resumed", generation: "g", after: "1048999-3", recovered: true, oldest: 1 }), "drop");
  assert.equal(answer.take(token(4, "b")), "deliver");
});

test("a resume that lost something is told, and goes on from what there is", () => {
  const answer = begun(token(3, "a"));
  assert.equal(answer.take({ type: "resumed", after: "1048999-8", recovered: false, oldest: 9 }), "deliver");
  assert.equal(answer.take(token(9, "z")), "deliver");
  assert.equal(answer.text(), "az");
});

test("a diverged answer loses what is no part of it any more", () => {
  const answer = begun(token(3, "a"), token(4, "b"), token(5, "c"));
  assert.equal(answer.take({ type: "diverged", at: "1048999-4", epoch: 1048999 }), "deliver");
  assert.equal(answer.text(), "ab");
  assert.equal(answer.take({ type: "taken_over", position: 5, epoch: 2097153 }), "deliver");
  assert.equal(answer.take(token(6, "x")), "deliver");
  assert.equal(answer.text(), "abx");
});

test("an answer that another page began goes on after its text, and is read again where that text must be cut", () => {
  const answer = new Answer({ generation: "g", cursor: "1048999-9", text: "shown" });
  assert.equal(answer.take(token(10, "!")), "deliver");
  assert.equal(answer.text(), "shown!");
  answer.take({ type: "diverged", at: "1048999-7", epoch: 1048999 });
  assert.equal(answer.text(), "");
  assert.equal(answer.cursor, "0-0");
  assert.equal(answer.take(token(8, "x")), "again");
});

test("an edge that cannot go on is not the end of the answer; any other error is", () => {
  const leaving = { type: "error", reason: "going_away", delivered_until: 3 };
  const answer = begun(token(3, "a"));
  assert.equal(answer.take(leaving), "again");
  assert.equal(answer.ended, false);
  assert.equal(answer.take({ type: "error", reason: "worker_lost", delivered_until: 3 }), "deliver");
  assert.equal(answer.ended, true);
  const told = begun();
  assert.equal(told.take({ type: "error", reason: "cancelled", position: 3 }), "deliver");
});

test("on plain HTTP, where the address names the generation, the frame need not", () => {
  const answer = new Answer({ generation: "g" });
  answer.take({ type: "accepted", position: 1, generation: "" });
  assert.equal(answer.generation, "g");
});

test("an answer that an idempotency key found has the earlier generation's name", () => {
  const answer = new Answer();
  answer.take({ ...accepted, attached_to: "earlier" });
  assert.equal(answer.generation, "earlier");
});
