// The mesh over time: what is gone, what moved, how fast tokens flow, and where things stand in the picture.

import assert from "node:assert/strict";
import { test } from "node:test";

import { MeshState, cells, layout } from "../../services/edge/static/mesh_state.js";

const worker = (id, more = {}) => ({ id, address: id, models: ["m"], limit: 4, running: 0, queued: 0, lanes: {}, healthy: true, draining: false, began_ms: 1, reported_ms: 5000, kv_used: null, ...more });
const edge = (id, reads) => ({ id, address: id, connections: 1, generations: 1, routers: ["r"], reads });
const told = (workers, edges = [], now_ms = 5000) => ({ now_ms, workers, edges, routers: [{ id: "router-0", address: "r", generations: 0 }], caches: [], pools: [], store: {} });
const reads = (worker_, streams) => ({ [worker_]: { count: Object.keys(streams).length, streams } });

test("the first look is no news", () => {
  assert.deepEqual(new MeshState().update(told([worker("a")]), 1), []);
});

test("a worker that dies is shown as gone, its streams have moved, and it comes back", () => {
  const state = new MeshState();
  state.update(told([worker("a"), worker("b")], [edge("e", reads("a", { s1: 5, s2: 5 }))]), 1000);
  const said = state.update(told([worker("b")], [edge("e", reads("b", { s1: 9, s2: 6 }))]), 2000);
  assert.deepEqual(said, [
    { name: "mesh.worker.gone", values: { worker: "a" } }, { name: "mesh.moved", values: { count: 2, from: "a", to: "b" } },
  ]);
  assert.deepEqual(state.workers.map(({ id, state: how }) => [id, how]), [["a", "gone"], ["b", "ready"]]);
  assert.deepEqual(state.update(told([worker("a", { began_ms: 2 }), worker("b")], [edge("e", {})]), 3000), [{ name: "mesh.worker.back", values: { worker: "a" } }]);
  assert.deepEqual(state.workers.map(({ state: how }) => how), ["ready", "ready"]);
});

test("a stream that nobody reads for a moment has still moved, and one that has ended is forgotten", () => {
  const state = new MeshState();
  const both = [worker("a"), worker("b")];
  state.update(told(both, [edge("e", reads("a", { s1: 5, s2: 5 }))]), 1000);
  assert.deepEqual(state.update(told(both, [edge("e", {})]), 2000), []);
  assert.deepEqual([...state.streams.keys()], ["s1", "s2"]);
  assert.deepEqual(state.update(told(both, [edge("e", reads("b", { s1: 90 }))]), 5000), [{ name: "mesh.moved.one", values: { count: 1, from: "a", to: "b" } }]);
  assert.equal(state.links[0].rate, 0, "what was made up for is no speed");
  state.update(told(both, [edge("e", reads("b", { s1: 95 }))]), 13_000);
  assert.deepEqual([...state.streams.keys()], ["s1"]);
});

test("one that was replaced between two looks is told too, and one that does not come back is forgotten", () => {
  const state = new MeshState();
  state.update(told([worker("a"), worker("b")]), 1000);
  assert.deepEqual(state.update(told([worker("a", { began_ms: 9 }), worker("b")]), 2000), [{ name: "mesh.worker.back", values: { worker: "a" } }]);
  state.update(told([worker("a", { began_ms: 9 })]), 3000);
  assert.equal(state.workers.length, 2);
  assert.deepEqual(state.update(told([worker("a", { began_ms: 9 })]), 134_000), []);
  assert.equal(state.workers.length, 1);
});

test("tokens a second come from positions, for each pair of edge and worker", () => {
  const state = new MeshState();
  state.update(told([worker("a")], [edge("e", reads("a", { s1: 10, s2: 20 })), edge("f", reads("a", { s3: 1 }))]), 1000);
  state.update(told([worker("a")], [edge("e", reads("a", { s1: 30, s2: 30, s4: 500 })), edge("f", reads("a", { s3: 2 }))]), 3000);
  assert.deepEqual(state.links, [{ edge: "e", worker: "a", count: 3, rate: 15 }, { edge: "f", worker: "a", count: 1, rate: 0.5 }]);
  assert.equal(state.workers[0].rate, 15.5);
});

test("a worker that reports nothing is silent before it is gone", () => {
  const state = new MeshState();
  state.update(told([worker("a", { reported_ms: 1000 }), worker("b", { healthy: false }), worker("c", { draining: true })]), 1000);
  assert.deepEqual(state.workers.map(({ state: how }) => how), ["silent", "down", "draining"]);
});

test("everything has its place, at every width, and nothing lies on anything else", () => {
  const workers = Array.from({ length: 7 }, (_, at) => worker(`w${at}`));
  for (const width of [300, 358, 700, 1150]) {
    const state = new MeshState();
    state.update({ ...told(workers, [edge("e", {}), edge("f", {})]), caches: [{ id: "cache-0" }] }, 1);
    const { boxes, height } = layout(state, width);
    assert.equal(boxes.size, 7 + 2 + 1 + 2);
    const all = [...boxes.values()];
    for (const [at, { x, y, w, h }] of all.entries()) {
      assert.ok(x >= 0 && y >= 0 && x + w <= width + 0.01 && y + h <= height, `inside at ${width}`);
      for (const other of all.slice(at + 1)) {
        assert.ok(x + w <= other.x || other.x + other.w <= x || y + h <= other.y || other.y + other.h <= y, `apart at ${width}`);
      }
    }
    const box = boxes.get("worker w0");
    for (const { x, y } of cells(box, 256)) assert.ok(x + 5 < box.x + box.w && y + 5 < box.y + box.h, `slots inside at ${width}`);
  }
});
