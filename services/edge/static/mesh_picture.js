// The mesh as a picture: SVG that is drawn anew from the state, and dots for streams that stay and move.

import { draw } from "./dom.js";
import { number, say } from "./language.js";
import { cells, layout } from "./mesh_state.js";

export class MeshPicture {
  #svg;
  #links = draw("g", { class: "links" });
  #boxes = draw("g", { class: "boxes" });
  #dots = draw("g", { class: "dots" });
  #byStream = new Map(); // name → its dot

  constructor(svg) {
    this.#svg = svg;
    svg.setAttribute("role", "img");
    svg.append(this.#links, this.#boxes, this.#dots);
  }

  show(state) {
    const width = Math.max(300, Math.round(this.#svg.parentElement.clientWidth));
    const placed = layout(state, width);
    this.#svg.setAttribute("viewBox", `0 0 ${width} ${placed.height}`);
    this.#svg.setAttribute("height", placed.height);
    this.#svg.setAttribute("aria-label", spoken(state));
    this.#links.replaceChildren(...lines(state, placed), ...streams(state, placed));
    this.#boxes.replaceChildren(...boxes(state, placed));
    this.#move(state, placed);
  }

  #move(state, { boxes: at }) {
    const free = new Map();
    for (const worker of state.workers) free.set(worker.id, cells(at.get(`worker ${worker.id}`), worker.limit));
    const seen = new Set();
    for (const [name, { worker, missing }] of state.streams) { // those that are missing are behind the others
      const cell = free.get(worker)?.shift();
      if (!cell) continue; // more than there is room for: the numbers tell
      seen.add(name);
      let dot = this.#byStream.get(name);
      if (!dot) {
        dot = draw("circle", { r: 4.5, class: "dot-stream" });
        this.#byStream.set(name, dot);
        this.#dots.append(dot);
      }
      dot.classList.toggle("missing", missing !== undefined);
      dot.style.transform = `translate(${cell.x}px, ${cell.y}px)`;
    }
    for (const [name, dot] of this.#byStream) {
      if (seen.has(name)) continue;
      dot.remove();
      this.#byStream.delete(name);
    }
  }
}

function spoken({ edges, routers, workers, streams }) {
  const ready = workers.filter(({ state }) => state === "ready").length;
  return say("mesh.spoken", { edges: edges.length, routers: routers.length, workers: workers.length, ready, streams: [...streams.values()].filter(({ missing }) => missing === undefined).length });
}

// Who talks to whom beside the tokens: thin lines.
function lines(state, { boxes: at }) {
  const made = [];
  const line = (from, to, kind) => {
    const one = at.get(from);
    const other = at.get(to);
    if (!one || !other) return;
    const down = one.y < other.y;
    const x1 = one.x + one.w / 2, y1 = down ? one.y + one.h : one.y;
    const x2 = other.x + other.w / 2, y2 = down ? other.y : other.y + other.h;
    const bend = (y2 - y1) / 2;
    made.push(draw("path", { class: `line ${kind}`, d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}` }));
  };
  const byAddress = new Map(state.routers.map(({ id, address }) => [address, id]));
  for (const edge of state.edges) {
    for (const address of edge.routers) line(`edge ${edge.id}`, `router ${byAddress.get(address)}`, "control");
    line(`edge ${edge.id}`, "store", "keeps");
  }
  for (const worker of state.workers.filter((each) => each.state !== "gone")) {
    for (const { id } of state.routers) line(`router ${id}`, `worker ${worker.id}`, "control");
    line(`worker ${worker.id}`, "store", "keeps");
  }
  for (const { id } of state.routers) for (const cache of state.caches) line(`router ${id}`, `cache ${cache.id}`, "control");
  return made;
}

// Tokens: from workers to edges, faster and broader where there are more.
function streams(state, { boxes: at, small }) {
  const order = new Map(state.edges.map(({ id }, index) => [id, index]));
  return state.links.filter(({ count }) => count > 0).flatMap(({ edge, worker, count, rate }) => {
    const to = at.get(`edge ${edge}`);
    const from = at.get(`worker ${worker}`);
    if (!to || !from) return [];
    const x1 = from.x, y1 = from.y + from.h / 2, x2 = to.x + to.w, y2 = to.y + to.h / 2;
    const bend = (x1 - x2) / 2;
    const d = `M${x1} ${y1}C${x1 - bend} ${y1} ${x2 + bend} ${y2} ${x2} ${y2}`;
    const breadth = Math.min(9, 2 + Math.sqrt(count) * 1.4);
    const bed = draw("path", { class: "stream-bed", d, "stroke-width": breadth });
    const flow = draw("path", { class: rate > 0 ? "stream-flow" : "stream-flow still", d, "stroke-width": Math.max(2, breadth - 2) });
    flow.style.animationDuration = `${Math.max(0.25, Math.min(3, 60 / Math.max(1, rate)))}s`;
    // Not all at the crossing: those of every other edge nearer to it.
    const t = order.get(edge) % 2 ? 0.68 : 0.32;
    const u = 1 - t;
    const along = (a, b, c, e) => u ** 3 * a + 3 * u * u * t * b + 3 * u * t * t * c + t ** 3 * e;
    const label = draw("text", { class: "rate", x: along(x1, x1 - bend, x2 + bend, x2), y: along(y1, y1, y2, y2) - breadth / 2 - 5 });
    label.textContent = small ? number(rate) : say("mesh.rate", { rate: number(rate) });
    return [bed, flow, label];
  });
}

function boxes(state, { boxes: at, small }) {
  const made = [];
  for (const { id, generations, draining, store_away } of state.routers) {
    made.push(box(at.get(`router ${id}`), "router", id, say("mesh.generations", { count: number(generations) }), draining || store_away ? "warn" : ""));
  }
  for (const { id, connections, generations } of state.edges) {
    const where = at.get(`edge ${id}`);
    const node = box(where, "edge", id, say("mesh.connections", { count: number(connections) }), "");
    node.append(text(where.x + 12, where.y + 54, "small", say("mesh.streams", { count: number(generations) })));
    made.push(node);
  }
  for (const worker of state.workers) made.push(workerBox(at.get(`worker ${worker.id}`), worker, small));
  if (state.store) {
    const value = small ? `${number(state.store.answered_ms, 1)} ms` : say("mesh.store", { ms: number(state.store.answered_ms, 1), mib: number(state.store.used_bytes / 2 ** 20, 1) });
    made.push(box(at.get("store"), "store", "Valkey", value, ""));
  }
  for (const { id } of state.caches) made.push(box(at.get(`cache ${id}`), "cache", id, say("mesh.cache"), ""));
  return made;
}

function box({ x, y, w, h }, kind, name, line, state) {
  const group = draw("g", { class: `box ${kind} ${state}` });
  group.append(draw("rect", { x, y, width: w, height: h, rx: 12 }));
  group.append(text(x + 12, y + 21, "name", name, w - 24), text(x + 12, y + 39, "small", line, w - 24));
  return group;
}

function workerBox(where, worker, small) {
  const { x, y, w, h } = where;
  const group = box(where, "worker", worker.id, small ? say(`state.${worker.state}`) : `${say(`state.${worker.state}`)} · ${worker.models[0] ?? ""}`, worker.state);
  for (const each of cells(where, worker.limit)) group.append(draw("circle", { class: "slot", cx: each.x, cy: each.y, r: 5 }));
  const used = say("mesh.slots", { running: number(worker.running), limit: number(worker.limit) });
  const queue = worker.queued ? ` · ${say("mesh.queued", { count: number(worker.queued) })}` : "";
  group.append(text(x + 12, y + h - 8, "small", small ? `${worker.running}/${worker.limit}${worker.queued ? ` +${worker.queued}` : ""}` : used + queue));
  if (worker.kv_used !== null && worker.state !== "gone" && !small) {
    const full = 70;
    group.append(draw("rect", { class: "kv", x: x + w - full - 12, y: y + 14, width: full, height: 5, rx: 2.5 }));
    group.append(draw("rect", { class: "kv used", x: x + w - full - 12, y: y + 14, width: full * worker.kv_used, height: 5, rx: 2.5 }));
    const label = text(x + w - 12, y + 32, "tiny", say("mesh.kv", { share: number(worker.kv_used * 100) }));
    label.setAttribute("text-anchor", "end");
    group.append(label);
  }
  return group;
}

function text(x, y, kind, content, room = Infinity) {
  const most = Math.floor(room / (kind === "name" ? 8 : 6.6));
  const shown = content.length > most ? `${content.slice(0, Math.max(1, most - 1))}…` : content;
  const made = draw("text", { x, y, class: kind });
  made.textContent = shown;
  return made;
}
