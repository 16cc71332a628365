// The ways to the mesh. Each tells its owner what happens and carries answers until `close`:
//
//   owner.opened(hello) · owner.models(names) · owner.heard() · owner.roundTrip(ms) · owner.failed() · owner.broke(abnormal) · owner.refused() · owner.crowded()
//   owner.frame(id, frame)      of one answer
//   owner.notice(frame)         of the connection
//
// `carry(question)` opens an answer, or goes on with it where the mesh has it already; `cancel` stops it. A transport is used
// once: after `failed`, `broke` or `refused` it is closed.

import { TERMINAL } from "./answer.js";

const PROTOCOL = "streamway.v1.json";
const POLL_S = 15;
const SILENT_MS = 30_000; // heartbeats come each 15 s
const UNAUTHENTICATED = 4001; // close codes
const OVERLOADED = 4013; // use another way for now

export class WebSocketTransport {
  #owner;
  #socket;
  #key;
  #base;
  #said = false; // hello came

  constructor({ base, key, owner }) {
    this.#owner = owner;
    this.#key = key;
    this.#base = base;
    const url = new URL("v1/stream", base);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url, key ? [PROTOCOL, `streamway.auth.${base64url(key)}`] : [PROTOCOL]);
    this.#socket = socket;
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    socket.onclose = ({ code }) => this.#closed(code);
  }

  carry(question) {
    const { answer, id } = question;
    if (answer.generation) this.#send({ type: "resume", id, generation: answer.generation, after: answer.cursor });
    else this.#send({ type: "open", ...question.request, id, idempotency_key: id });
  }

  // Everything that an earlier connection had; `after` has the cursors by generation. Answered by the notice "restored".
  restore(restoreId, after) {
    this.#send({ type: "restore", restore_id: restoreId, after });
    return true;
  }

  cancel(question) {
    this.#send({ type: "cancel", id: question.id });
  }

  ping() {
    this.#send({ type: "ping", t: Math.round(performance.now()) });
  }

  close() {
    const socket = this.#socket;
    socket.onmessage = socket.onclose = null;
    if (socket.readyState <= WebSocket.OPEN) socket.close(1000);
  }

  #receive(frame) {
    const owner = this.#owner;
    owner.heard();
    if (frame.type === "hello") {
      this.#said = true;
      owner.opened(frame);
    } else if (frame.type === "pong") owner.roundTrip(performance.now() - frame.t);
    else if (frame.id !== undefined) owner.frame(frame.id, frame);
    else if (frame.type !== "heartbeat") owner.notice(frame);
  }

  async #closed(code) {
    const owner = this.#owner;
    if (code === OVERLOADED) owner.crowded();
    else if (this.#said) {
      if (code === UNAUTHENTICATED) owner.refused();
      // 1000, 1001 and 4009 are said by the edge; 1006 is a connection that just ended.
      else owner.broke(code === 1006);
    } else if (await unauthorised(this.#base, this.#key)) owner.refused();
    else owner.failed();
  }

  #send(frame) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(frame));
  }
}

// Server-sent events, or long polls where `polling`: one request after another for each answer.
export class HttpTransport {
  #owner;
  #base;
  #headers;
  #polling;
  #ending = new AbortController();

  constructor({ base, key, owner, restoreId, polling }) {
    this.#owner = owner;
    this.#base = base;
    this.#polling = polling;
    this.#headers = key ? { Authorization: `Bearer ${key}` } : {};
    if (restoreId) this.#headers["X-Session-Restore-ID"] = restoreId;
    this.#open();
  }

  carry(question) {
    this.#read(question).catch((problem) => this.#trouble(problem));
  }

  restore() {
    return false; // each answer is asked for by its own id
  }

  cancel({ answer }) {
    if (!answer.generation) return;
    this.#fetch(`v1/generations/${answer.generation}`, { method: "DELETE" }).catch((problem) => this.#trouble(problem));
  }

  ping() {
    this.#models().then(
      (models) => this.#owner.models(models),
      (problem) => this.#trouble(problem),
    );
  }

  close() {
    this.#ending.abort();
  }

  async #open() {
    try {
      this.#owner.opened({ models: await this.#models() });
    } catch (problem) {
      this.#trouble(problem);
    }
  }

  async #models() {
    const asked = performance.now();
    const response = await this.#fetch("v1/models");
    const { data = [] } = await response.json(); // without a router there is an error instead
    if (!this.#ending.signal.aborted) this.#owner.roundTrip(performance.now() - asked);
    return data.map((model) => model.id);
  }

  async #read(question) {
    const { answer, id } = question;
    if (!answer.generation) {
      const body = JSON.stringify({ ...question.request, idempotency_key: id });
      const headers = { "Content-Type": "application/json" };
      const response = await this.#fetch("v1/generations", { method: "POST", cache: "default", headers, body }, id);
      if (!response) return;
      answer.generation = (await response.json()).generation;
      if (question.cancelled) this.cancel(question);
    }
    if (this.#polling) await this.#poll(question);
    else await this.#stream(question);
  }

  async #stream({ answer, id }) {
    const headers = { Accept: "text/event-stream", "Last-Event-ID": answer.cursor };
    const response = await this.#fetch(`v1/generations/${answer.generation}/events`, { headers }, id);
    if (!response) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await within(reader.read(), SILENT_MS);
      if (this.#ending.signal.aborted) return;
      if (done) throw new Broken();
      this.#owner.heard();
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
        if (data.length && this.#deliver(id, JSON.parse(data.join("\n")))) return;
      }
    }
  }

  async #poll({ answer, id }) {
    for (;;) {
      const path = `v1/generations/${answer.generation}/events?after=${answer.cursor}&wait=${POLL_S}`;
      const response = await this.#fetch(path, {}, id);
      if (!response) return;
      this.#owner.heard();
      const { events } = await response.json();
      if (this.#ending.signal.aborted) return;
      for (const frame of events) if (this.#deliver(id, frame)) return;
    }
  }

  // True when nothing follows.
  #deliver(id, frame) {
    const { signal } = this.#ending;
    if (!signal.aborted && frame.type === "going_away") this.#owner.broke(false); // this edge stops, the answer does not
    else if (!signal.aborted) this.#owner.frame(id, frame);
    return signal.aborted || TERMINAL.has(frame.type) || frame.type === "going_away";
  }

  // Null when the mesh refused it and `id`'s reader has been told: that is no trouble of the network.
  async #fetch(path, options = {}, id = undefined) {
    const signal = this.#polling ? AbortSignal.any([this.#ending.signal, AbortSignal.timeout(SILENT_MS)]) : this.#ending.signal;
    const headers = { ...this.#headers, ...options.headers };
    // "no-store" also sends Cache-Control: no-cache, which a new request must not say for the user.
    const response = await fetch(new URL(path, this.#base), { cache: "no-store", ...options, headers, signal });
    if (response.ok) return response;
    if (response.status === 401) throw new Refused();
    const said = await response.json().catch(() => null);
    if (said?.error?.code === undefined) throw new Failed(); // from something in between
    if (id === undefined) return response;
    const { code, message, param } = said.error;
    const frame = { type: "error", reason: code, message, retryable: said.retryable, field: param ?? undefined };
    this.#deliver(id, frame);
    return null;
  }

  #trouble(problem) {
    if (this.#ending.signal.aborted) return;
    const owner = this.#owner;
    if (problem instanceof Refused) owner.refused();
    else if (problem instanceof Broken) owner.broke(true);
    else owner.failed();
  }
}

class Refused extends Error {}
class Failed extends Error {}
class Broken extends Error {} // a stream that ended, broke or fell silent before its answer was whole

async function within(promise, ms) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Broken()), ms);
  });
  try {
    return await Promise.race([promise.catch(() => ({ done: true })), late]);
  } finally {
    clearTimeout(timer);
  }
}

// The browser hides why an upgrade was refused. The same key on plain HTTP tells.
async function unauthorised(base, key) {
  try {
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    const response = await fetch(new URL("v1/models", base), { headers, signal: AbortSignal.timeout(3000) });
    return response.status === 401;
  } catch {
    return false;
  }
}

function base64url(text) {
  const bytes = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
