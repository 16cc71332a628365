// The mesh over time, from what the edge tells each second: what is gone, what moved, how fast tokens flow. No I/O.
//
//   const state = new MeshState();
//   for (const each of state.update(told, now)) say(each);      { name, values }: rows of texts.js
//   state.workers, .edges, .routers, .caches, .links, .streams

// A worker that is gone is shown this long, a stream that nobody reads just now so long where it was: it ended, or moves.
const GONE_MS = 120_000;
const MISSING_MS = 10_000;
// A report that is older than this is silence.
const SILENT_MS = 2_500;

export class MeshState {
  workers = []; // as told, with state (ready, draining, down, silent, gone) and rate (tokens a second that edges read)
  edges = [];
  routers = [];
  caches = [];
  store = null;
  pools = [];
  links = []; // { edge, worker, count, rate }
  streams = new Map(); // name → { worker, edge, position, missing }: missing since when, for one that is read nowhere now
  #gone = new Map(); // id → the worker as it was last seen, and when
  #at = 0;

  update(told, now) {
    const first = this.#at === 0;
    const seconds = Math.max(0.2, (now - this.#at) / 1000);
    const streams = streamsOf(told.edges);
    const rates = new Map();
    const moves = new Map();
    for (const [name, stream] of streams) {
      const before = this.streams.get(name);
      if (!before) continue;
      const link = `${stream.edge} ${stream.worker}`;
      // What was read again from its channel meanwhile is no speed.
      const came = before.missing ? 0 : Math.max(0, stream.position - before.position);
      rates.set(link, (rates.get(link) ?? 0) + came / seconds);
      if (before.worker !== stream.worker) {
        const move = JSON.stringify([before.worker, stream.worker]);
        moves.set(move, (moves.get(move) ?? 0) + 1);
      }
    }
    for (const [name, before] of this.streams) {
      const missing = before.missing ?? now;
      if (!streams.has(name) && now - missing < MISSING_MS) streams.set(name, { ...before, missing });
    }
    const links = linksOf(told.edges, rates);
    const workers = told.workers.map((worker) => ({ ...worker, state: stateOf(worker, told.now_ms), rate: rateOf(links, worker.id) }));
    const said = first ? [] : [...this.#changes(workers, told, now), ...[...moves].map(moved)];
    const there = new Set(workers.map(({ id }) => id));
    for (const [id, { since }] of this.#gone) if (there.has(id) || now - since > GONE_MS) this.#gone.delete(id);
    const gone = [...this.#gone.values()].map(({ worker }) => ({ ...worker, state: "gone", rate: 0, running: 0, queued: 0, lanes: {}, kv_used: null }));
    this.workers = [...workers, ...gone].sort((one, other) => one.id.localeCompare(other.id, "en", { numeric: true }));
    const { edges, routers, caches, store, pools } = told;
    Object.assign(this, { edges, routers, caches, store, pools, links, streams });
    this.#at = now;
    return said;
  }

  #changes(workers, told, now) {
    const said = [];
    const before = new Map(this.workers.map((worker) => [worker.id, worker]));
    const there = new Map(workers.map((worker) => [worker.id, worker]));
    for (const [id, worker] of before) {
      if (worker.state === "gone" || there.has(id)) continue;
      this.#gone.set(id, { worker, since: now });
      said.push({ name: "mesh.worker.gone", values: { worker: id } });
    }
    for (const [id, worker] of there) {
      const old = before.get(id);
      if (!old) said.push({ name: "mesh.worker.new", values: { worker: id } });
      else if (old.state === "gone" || old.began_ms !== worker.began_ms) said.push({ name: "mesh.worker.back", values: { worker: id } });
      else if (old.state !== worker.state && worker.state !== "silent" && old.state !== "silent") said.push({ name: `mesh.worker.${worker.state}`, values: { worker: id } });
    }
    for (const kind of ["edges", "routers", "caches"]) {
      const now_ = new Set(told[kind].map(({ id }) => id));
      for (const { id } of this[kind]) if (!now_.has(id)) said.push({ name: "mesh.process.gone", values: { process: id } });
      const old = new Set(this[kind].map(({ id }) => id));
      for (const id of now_) if (!old.has(id)) said.push({ name: "mesh.process.new", values: { process: id } });
    }
    return said;
  }
}

function moved([move, count]) {
  const [from, to] = JSON.parse(move);
  return { name: count === 1 ? "mesh.moved.one" : "mesh.moved", values: { count, from, to } };
}

function streamsOf(edges) {
  const found = new Map();
  for (const { id: edge, reads } of edges) {
    for (const [worker, { streams }] of Object.entries(reads)) {
      for (const [name, position] of Object.entries(streams)) found.set(name, { worker, edge, position });
    }
  }
  return found;
}

function linksOf(edges, rates) {
  return edges.flatMap(({ id: edge, reads }) =>
    Object.entries(reads).map(([worker, { count }]) => ({ edge, worker, count, rate: rates.get(`${edge} ${worker}`) ?? 0 })));
}

function rateOf(links, id) {
  return links.reduce((sum, { worker, rate }) => sum + (worker === id ? rate : 0), 0);
}

function stateOf(worker, now_ms) {
  if (now_ms - worker.reported_ms > SILENT_MS) return "silent";
  if (!worker.healthy) return "down";
  return worker.draining ? "draining" : "ready";
}

// Where everything stands in a picture of this width: boxes by id, { x, y, w, h }, and the picture's height. Tokens cross the
// middle; who decides is above it, what keeps is below.
export function layout(state, width) {
  const small = width < 620;
  const row = 54;
  const gap = 14;
  const boxes = new Map();
  const spread = (ids, y, w) => {
    const each = Math.min(w, (width - gap * (ids.length - 1)) / Math.max(1, ids.length));
    const left = (width - each * ids.length - gap * (ids.length - 1)) / 2;
    ids.forEach((id, at) => boxes.set(id, { x: left + at * (each + gap), y, w: each, h: row }));
  };
  spread(state.routers.map(({ id }) => `router ${id}`), 4, small ? 150 : 190);
  const top = row + (small ? 44 : 58);
  const sides = { edge: small ? width * 0.33 : 200, worker: small ? width * 0.46 : 300 };
  const heights = { edge: 66, worker: state.workers.length > 12 ? 74 : 98 };
  const rows = { edge: state.edges.length, worker: state.workers.length };
  const column = (kind) => rows[kind] * (heights[kind] + gap) - gap;
  const middle = Math.max(column("edge"), column("worker"), 120);
  for (const [kind, list] of [["edge", state.edges], ["worker", state.workers]]) {
    const from = top + (middle - column(kind)) / 2;
    list.forEach(({ id }, at) =>
      boxes.set(`${kind} ${id}`, { x: kind === "edge" ? 0 : width - sides.worker, y: from + at * (heights[kind] + gap), w: sides[kind], h: heights[kind] }));
  }
  const bottom = top + middle + (small ? 36 : 48);
  spread([...(state.store ? ["store"] : []), ...state.caches.map(({ id }) => `cache ${id}`)], bottom, small ? 150 : 190);
  return { boxes, height: bottom + row + 4, small };
}

// The places of a worker's slots in its box: at most `most`, in rows.
export function cells(box, limit, most = 36) {
  const count = Math.min(limit, most);
  const perRow = Math.max(1, Math.floor((box.w - 24) / 14));
  return Array.from({ length: Math.min(count, perRow * 2) }, (_, at) => ({
    x: box.x + 18 + (at % perRow) * 14,
    y: box.y + 56 + Math.floor(at / perRow) * 15,
  }));
}
