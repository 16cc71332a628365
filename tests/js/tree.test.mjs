// Conversations with branches, and how many of them a browser keeps.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Library } from "../../services/edge/static/library.js";
import * as tree from "../../services/edge/static/tree.js";

const texts = (conversation) => tree.path(conversation).map(({ text }) => text);

function talked() {
  const conversation = tree.fresh("c", "s", 1);
  const asked = tree.add(conversation, 0, { role: "user", text: "one" });
  const answered = tree.add(conversation, asked.id, { role: "assistant", text: "1", state: "done", facts: {} });
  const next = tree.add(conversation, answered.id, { role: "user", text: "two" });
  tree.add(conversation, next.id, { role: "assistant", text: "2", state: "done", facts: {} });
  return { conversation, asked, answered, next };
}

test("a question that is asked otherwise is a branch, and both can be gone back to", () => {
  const { conversation, next, answered } = talked();
  const instead = tree.add(conversation, answered.id, { role: "user", text: "zwei" });
  assert.deepEqual(texts(conversation), ["one", "1", "zwei"]);
  assert.deepEqual(tree.branches(conversation, instead), [next, instead]);
  tree.choose(conversation, next);
  assert.deepEqual(texts(conversation), ["one", "1", "two", "2"]);
});

test("a model is asked with what is shown in front, without what failed", () => {
  const { conversation, asked } = talked();
  const failed = tree.add(conversation, asked.id, { role: "assistant", text: "", state: "failed", facts: {} });
  const more = tree.add(conversation, failed.id, { role: "user", text: "and?" });
  const answer = tree.add(conversation, more.id, { role: "assistant", text: "", state: "live", facts: {} });
  assert.deepEqual(tree.messages(conversation, answer, "be kind").map(({ content }) => content), ["be kind", "one", "and?"]);
});

test("what is taken out goes with all that follows it, and the branch beside it is shown", () => {
  const { conversation, asked, answered } = talked();
  const again = tree.add(conversation, asked.id, { role: "assistant", text: "uno", state: "done", facts: {} });
  tree.remove(conversation, again);
  assert.deepEqual(texts(conversation), ["one", "1", "two", "2"]);
  tree.remove(conversation, answered);
  assert.deepEqual(texts(conversation), ["one"]);
  assert.deepEqual(conversation.chosen, { 0: asked.id });
});

test("a title is the first line of what was asked, cut between letters", () => {
  assert.equal(tree.titled("  a\n b  "), "a b");
  const long = tree.titled("🌊".repeat(80));
  assert.equal(Array.from(long).length, 60);
  assert.ok(!/[\ud800-\udbff](?![\udc00-\udfff])/.test(long));
});

test("what a browser kept is taken as it was, or not at all", () => {
  const { conversation } = talked();
  assert.deepEqual(texts(tree.revived(JSON.stringify(conversation))), ["one", "1", "two", "2"]);
  const node = { id: 1, parent: 0, role: "user", text: "x" };
  const kept = (nodes, more = {}) => JSON.stringify({ id: "c", session: "s", nodes, chosen: {}, ...more });
  for (const damaged of [null, "", "null", "{", "[]", kept([{ ...node, parent: 9 }]), kept([node, node]), kept([{ ...node, role: "system" }]),
    kept([{ ...node, text: 5 }]), kept([null]), kept("x"), kept([], { chosen: null }), kept([{ ...node, id: "1" }])]) assert.equal(tree.revived(damaged), null);
  const stopped = tree.revived(kept([node, { id: 2, parent: 1, role: "assistant", text: "", state: "live" }]));
  assert.equal(stopped.nodes[1].state, "stopped", "nothing says how to go on with it");
  assert.equal(tree.add(stopped, 2, { role: "user", text: "y" }).id, 3);
});

// As localStorage, with room for so many characters.
class Room {
  constructor(chars = Infinity) {
    this.chars = chars;
    this.kept = new Map();
  }
  getItem(key) {
    return this.kept.get(key) ?? null;
  }
  removeItem(key) {
    this.kept.delete(key);
  }
  setItem(key, value) {
    const sum = [...this.kept].reduce((all, [name, text]) => all + (name === key ? 0 : text.length), value.length);
    if (sum > this.chars) throw new Error("QuotaExceededError");
    this.kept.set(key, value);
  }
}

function one(id, updated, chars = 10) {
  const conversation = tree.fresh(id, "s", updated);
  tree.add(conversation, 0, { role: "user", text: "x".repeat(chars) });
  return conversation;
}

const ids = (library) => library.list().map(({ id }) => id);

test("the oldest conversations give way, by number, by characters, and to the browser's own bound", () => {
  const few = new Library(new Room(), { most: 3 });
  for (const id of ["a", "b", "c", "d"]) assert.ok(few.save(one(id, id.charCodeAt(0))));
  assert.deepEqual(ids(few), ["d", "c", "b"]);
  assert.equal(few.load("a"), null);
  assert.equal(few.load("b").nodes[0].text, "xxxxxxxxxx");

  const small = new Library(new Room(), { mostChars: 3000 });
  for (const [at, id] of ["a", "b", "c"].entries()) small.save(one(id, at, 1000));
  assert.deepEqual(ids(small), ["c", "b"]);
  assert.equal(small.save(one("huge", 9, 4000)), false);
  assert.deepEqual(ids(small), ["c", "b"], "nothing gave way for what has no room at all");

  const full = new Library(new Room(2600));
  for (const [at, id] of ["a", "b", "c"].entries()) assert.ok(full.save(one(id, at, 1000)));
  assert.deepEqual(ids(full), ["c"]);
});

test("the conversation that is saved never gives way to others, however old it is", () => {
  const library = new Library(new Room(), { most: 1 });
  library.save(one("new", 9));
  assert.ok(library.save(one("old", 1)));
  assert.deepEqual(ids(library), ["old"]);
});

test("deleting one, or all, leaves nothing of them", () => {
  const room = new Room();
  const library = new Library(room);
  library.save(one("a", 1));
  library.save(one("b", 2));
  library.remove("a");
  assert.deepEqual(ids(library), ["b"]);
  library.clear();
  assert.equal(room.kept.size, 0);
  room.setItem("streamway.conversations", '[{"id": 5}, "x"]');
  assert.deepEqual(ids(library), []);
});
