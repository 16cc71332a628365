// A client of a Streamway edge: many answers side by side, each one unbroken text whatever happens to the network.
//
//   const client = new StreamwayClient();
//   client.addEventListener("state", ({ detail }) => console.log(detail.state, detail.transport));
//   client.connect();
//   const generation = client.open({ model, messages });
//   for await (const event of generation) if (event.type === "token") show(event.text);
//   generation.cancel();
//
// It speaks WebSocket, and where that does not get through server-sent events, then long polls (ladder.js decides). When a
// connection breaks it comes back by itself and every answer goes on where its reader is. `generation.saved` holds what
// another page, or the same after a reload, needs to go on: `client.resume(saved)`.
//
// Events are the frames of docs/protocol.md. What a reader must know besides tokens: "diverged" replaces the text shown so
// far with its `text`; "resumed" comes only where something is missing (`recovered` false) or not there yet (`behind`).

import { Answer, TERMINAL } from "./answer.js";
import { Ladder, RUNGS, TIMES } from "./ladder.js";
import { HttpTransport, WebSocketTransport } from "./transports.js";

export class StreamwayClient extends EventTarget {
  #base;
  #key = "";
  #ladder;
  #transport = null;
  #higher = null; // a transport that is tried while the present one carries on
  #live = new Map(); // id → Generation
  #restoring = ""; // a connection of an earlier page, whose answers are to be given back
  #restoreId = "";
  #timer = 0;
  hello = null; // what the server said first on the present connection
  state = "closed"; // closed, connecting, open, waiting (to try again) or refused (the key is missing or wrong)

  // `base`: the edge, as a URL that ends with a slash. `times`: what of ladder.js's TIMES shall be another.
  constructor({ base = new URL(".", location.href).href, times = {} } = {}) {
    super();
    this.#base = base;
    this.#ladder = new Ladder(Math.random, { ...TIMES, ...times });
    globalThis.addEventListener?.("online", () => this.#happened({ type: "online" }));
  }

  // The way in use: "websocket", "sse" or "poll".
  get transport() {
    return this.#ladder.name;
  }

  // Names this client's connection to the mesh: given to `restore` of a later page, it gives all of its answers back.
  get restoreId() {
    return this.#restoreId;
  }

  // Connects and stays connected until `close`. A new key takes effect at once.
  connect({ key = this.#key } = {}) {
    const changed = key !== this.#key;
    this.#key = key;
    if (changed || this.state === "refused") this.#happened({ type: "stop" });
    this.#happened({ type: "start" });
  }

  // Answers that have not ended are lost to this page; the mesh keeps them for its grace.
  close() {
    this.#happened({ type: "stop" });
    for (const generation of [...this.#live.values()]) this.#lose(generation, "The connection was closed.");
  }

  // Starts an answer, at once or as soon as there is a connection. `request` is an open frame without type and id.
  open(request, id = randomId()) {
    const session = this.hello?.session;
    return this.#begin(new Generation(this, id, session ? { session, ...request } : request, new Answer()));
  }

  // Goes on with an answer from `generation.saved`; `text` is what was shown of it.
  resume({ id, request, generation, cursor }, text = "") {
    return this.#begin(new Generation(this, id, request, new Answer({ generation, cursor, text })));
  }

  // Asks on the next connection for all answers of the connection with this id. Those that nobody resumed come as events
  // "restored" with the generation as `detail`.
  restore(restoreId) {
    this.#restoring = restoreId;
  }

  // Asks again which models there are.
  refresh() {
    if (this.state !== "open") return;
    if (this.transport !== "websocket") this.#transport.ping();
    else if (!this.#live.size) this.#happened({ type: "closed", abnormal: false }); // only `hello` tells them
  }

  // Of a Generation: stops it. What the mesh does not have ends here.
  _cancel(generation) {
    if (this.state === "open") this.#transport.cancel(generation);
    if (!generation.sent) this.#frame(generation.id, made("cancelled", "Cancelled before it was sent.", false));
  }

  #begin(generation) {
    this.#live.set(generation.id, generation);
    if (this.state === "open") this.#carry(generation);
    return generation;
  }

  #carry(generation) {
    generation.sent = true;
    this.#transport.carry(generation);
    // A cancel that the last connection may have lost.
    if (generation.cancelled) this.#transport.cancel(generation);
  }

  #lose(generation, message) {
    this.#frame(generation.id, made("connection_lost", message, true));
  }

  // ---------------------------------------------------------------- what happens

  #happened(event) {
    const now = performance.now();
    for (const action of this.#ladder.receive(event, now)) this.#act(action);
    clearTimeout(this.#timer);
    const due = this.#ladder.due;
    if (due < Infinity) this.#timer = setTimeout(() => this.#happened({ type: "tick" }), Math.max(0, due - performance.now()));
  }

  #act(action) {
    if (action.do === "drop") this.#drop();
    else if (action.do === "ping") this.#transport?.ping();
    else if (action.do === "connect") this.#transport = this.#made(action.rung, (transport) => this.#ownerOf(transport));
    else if (action.do === "rise") this.#higher = this.#made(action.rung, (transport) => this.#climberOf(transport, action.rung));
    else if (action.do === "state" && !(action.state === "closed" && this.state === "refused")) this.#enter(action.state, action);
  }

  #made(rung, ownerOf) {
    // What a transport says is heard only while it is in use, so it must be known to its owner first.
    const holder = {};
    const owner = ownerOf(holder);
    const options = { base: this.#base, key: this.#key, owner, restoreId: this.#restoreId };
    holder.transport = rung === 0 ? new WebSocketTransport(options) : new HttpTransport({ ...options, polling: RUNGS[rung] === "poll" });
    return holder.transport;
  }

  #ownerOf(holder) {
    const when = (act) => (...said) => {
      if (holder.transport && holder.transport === this.#transport) act(...said);
    };
    return {
      opened: when((hello) => {
        this.#greeted(hello);
        this.#happened({ type: "opened" });
        this.#carryAll();
      }),
      models: when((models) => {
        this.hello = { ...this.hello, models };
        this.#enter(this.state);
      }),
      heard: when(() => this.#happened({ type: "frame" })),
      roundTrip: when((ms) => this.#happened({ type: "rtt", ms })),
      failed: when(() => this.#happened({ type: "network_error" })),
      broke: when((abnormal) => this.#happened({ type: "closed", abnormal })),
      refused: when(() => this.#refused()),
      crowded: when(() => this.#happened({ type: "crowded" })),
      frame: when((id, frame) => this.#frame(id, frame)),
      notice: when((frame) => this.#notice(frame)),
    };
  }

  // A higher transport takes everything over once it is up. Until then only that counts.
  #climberOf(holder, rung) {
    const failed = () => {
      if (holder.transport !== this.#higher) return;
      this.#higher = null;
      holder.transport?.close();
      this.#happened({ type: "rise_failed" });
    };
    const settled = this.#ownerOf(holder);
    const climbing = () => holder.transport && holder.transport === this.#higher;
    const patience = setTimeout(failed, 5000);
    return {
      ...settled,
      opened: (hello) => {
        clearTimeout(patience);
        if (!climbing()) return;
        this.#transport?.close();
        this.#transport = this.#higher;
        this.#higher = null;
        this.#greeted(hello);
        this.#happened({ type: "risen", rung });
        this.#carryAll();
      },
      failed: () => (climbing() ? failed() : settled.failed()),
      broke: (abnormal) => (climbing() ? failed() : settled.broke(abnormal)),
      refused: () => (climbing() ? failed() : settled.refused()),
      crowded: () => (climbing() ? failed() : settled.crowded()),
    };
  }

  #greeted(hello) {
    this.hello = hello;
    if (hello.restore_id) this.#restoreId = hello.restore_id;
  }

  #carryAll() {
    if (this.#restoring) {
      const known = [...this.#live.values()].filter(({ answer }) => answer.generation);
      const after = Object.fromEntries(known.map(({ answer }) => [answer.generation, answer.cursor]));
      if (this.#transport.restore(this.#restoring, after)) return; // the rest follows with its answer
      this.#restoring = "";
    }
    for (const generation of [...this.#live.values()]) this.#carry(generation);
  }

  #frame(id, frame) {
    const generation = this.#live.get(id);
    if (!generation) return;
    const verdict = generation.answer.take(frame);
    if (verdict === "deliver") this.#deliver(generation, frame);
    else if (verdict === "again") this.#happened({ type: "closed", abnormal: false });
  }

  #deliver(generation, frame) {
    if (TERMINAL.has(frame.type)) this.#live.delete(generation.id);
    generation._receive(frame);
  }

  #notice(frame) {
    if (this.#restoring && (frame.type === "restored" || frame.type === "error")) this.#restored(frame.generations ?? []);
    else this.dispatchEvent(new CustomEvent(frame.type, { detail: frame }));
  }

  // The mesh sends the answers of this list by itself; what is not in it is asked for one by one.
  #restored(list) {
    this.#restoring = "";
    const given = new Map(list.map((each) => [each.id, each]));
    for (const generation of [...this.#live.values()]) {
      const found = given.get(generation.id);
      given.delete(generation.id);
      if (!found) this.#carry(generation);
      else {
        generation.sent = true;
        generation.answer.generation = found.generation;
        if (generation.cancelled) this.#transport.cancel(generation);
      }
    }
    for (const { id, generation } of given.values()) {
      const found = new Generation(this, id, null, new Answer({ generation }));
      found.sent = true;
      this.#live.set(id, found);
      this.dispatchEvent(new CustomEvent("restored", { detail: found }));
    }
  }

  #refused() {
    this.state = "refused";
    this.#happened({ type: "stop" });
    this.#enter("refused");
  }

  #drop() {
    this.#transport?.close();
    this.#higher?.close();
    this.#transport = this.#higher = this.hello = null;
  }

  #enter(state, { wait = 0 } = {}) {
    this.state = state;
    const detail = { state, wait, hello: this.hello, transport: this.transport };
    this.dispatchEvent(new CustomEvent("state", { detail }));
  }
}

// One answer. Iterate over it for its events; it ends after "finished" or "error".
class Generation {
  #client;
  #events = [];
  #wake = null;
  #read; // where the reader stands, which may be behind what has come
  sent = false;
  cancelled = false;

  constructor(client, id, request, answer) {
    this.#client = client;
    this.id = id;
    this.request = request;
    this.answer = answer;
    this.#read = answer.cursor;
  }

  // What `client.resume` needs to go on from the last event that was read.
  get saved() {
    const { id, request, answer } = this;
    // With the id of the mesh the request is not needed any more.
    return { id, request: answer.generation ? null : request, generation: answer.generation, cursor: this.#read };
  }

  // Asks for the end; the last event is then an error of reason "cancelled".
  cancel() {
    if (this.cancelled || this.answer.ended) return;
    this.cancelled = true;
    this.#client._cancel(this);
  }

  _receive(event) {
    const text = event.type === "diverged" ? this.answer.text() : undefined;
    this.#events.push({ event: text === undefined ? event : { ...event, text }, cursor: this.answer.cursor });
    this.#wake?.();
  }

  async *[Symbol.asyncIterator]() {
    for (;;) {
      while (this.#events.length) {
        const { event, cursor } = this.#events.shift();
        this.#read = cursor;
        yield event;
        if (TERMINAL.has(event.type)) return;
      }
      await new Promise((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

function made(reason, message, retryable) {
  return { type: "error", reason, message, retryable };
}

// 128 random bits. `crypto.randomUUID` exists in secure contexts only, and a mesh in a local network is often none.
export function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
