// A client of the edge's WebSocket protocol `streamway.v1.json`: one connection, many generations side by side.
//
//   const client = new StreamwayClient();
//   client.addEventListener("state", ({ detail }) => console.log(detail.state));
//   client.connect();
//   const generation = client.open({ model, messages });
//   for await (const event of generation) if (event.type === "token") show(event.text);
//   generation.cancel();
//
// It reconnects by itself: first after 100 ms, then with full jitter up to 5 s. A generation that was live when the connection
// broke ends with an error of reason "connection_lost".

const PROTOCOL = "streamway.v1.json";
const FIRST_RETRY_MS = 100;
const MOST_RETRY_MS = 5000;
const PING_MS = 15000;
const DEAD_MS = 30000; // a WebSocket without any frame for this long is dead
const TERMINAL = new Set(["finished", "error"]);
const UNAUTHENTICATED = 4001; // close code

export class StreamwayClient extends EventTarget {
  #url;
  #key = "";
  #socket = null;
  #live = new Map(); // id → Generation
  #attempt = 0;
  #retryTimer = 0;
  #pingTimer = 0;
  #lastFrame = 0;
  #wanted = false;
  hello = null; // the server's first frame on the present connection
  state = "closed"; // closed, connecting, open, waiting (to try again) or refused (the key is missing or wrong)

  constructor(url = defaultUrl()) {
    super();
    this.#url = url;
  }

  // Connects and stays connected until `close`. A new key takes effect at once.
  connect({ key = this.#key } = {}) {
    const changed = key !== this.#key;
    this.#key = key;
    this.#wanted = true;
    if (changed || !this.#socket) this.#dial();
  }

  close() {
    this.#wanted = false;
    this.#drop(1000);
    this.#loseAll("The connection was closed.");
    this.#enter("closed");
  }

  // Starts a generation. `request` is an open frame without type and id: model, messages, params, session, cache, …
  open(request) {
    const id = randomId();
    const generation = new Generation(id, (frame) => this.#send(frame));
    if (this.state !== "open") {
      generation.receive(lost("The connection is not up yet. It comes back by itself; try again in a moment."));
      return generation;
    }
    this.#live.set(id, generation);
    this.#send({ type: "open", session: this.hello.session, ...request, id });
    return generation;
  }

  #dial() {
    this.#drop(1000);
    this.#loseAll("The connection was made anew before the answer was complete. Ask again.");
    this.#enter("connecting");
    const protocols = this.#key ? [PROTOCOL, `streamway.auth.${base64url(this.#key)}`] : [PROTOCOL];
    const socket = new WebSocket(this.#url, protocols);
    this.#socket = socket;
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    socket.onclose = ({ code, reason }) => {
      if (this.#socket === socket) this.#broken(code, reason);
    };
  }

  #receive(frame) {
    this.#lastFrame = performance.now();
    if (frame.type === "hello") {
      this.hello = frame;
      this.#attempt = 0;
      this.#pingTimer = setInterval(() => this.#ping(), Math.min(PING_MS, frame.heartbeat_ms || PING_MS));
      this.#enter("open");
    } else if (frame.id !== undefined) {
      const generation = this.#live.get(frame.id);
      if (TERMINAL.has(frame.type)) this.#live.delete(frame.id);
      generation?.receive(frame);
    } else if (frame.type === "error" || frame.type === "going_away") {
      this.dispatchEvent(new CustomEvent(frame.type, { detail: frame }));
    }
  }

  #ping() {
    if (performance.now() - this.#lastFrame > DEAD_MS) {
      this.#drop(4000);
      this.#broken(1006, "");
    } else {
      this.#send({ type: "ping", t: Math.round(performance.now()) });
    }
  }

  async #broken(code, reason) {
    const had = this.hello !== null;
    this.#drop();
    this.#loseAll(reason || "The connection broke before the answer was complete. Ask again.");
    if (!this.#wanted) return;
    // The browser hides why an upgrade was refused. The same key on plain HTTP tells.
    const refused = code === UNAUTHENTICATED || (!had && (await this.#refused()));
    if (!this.#wanted || this.#socket) return; // closed or dialled again meanwhile
    if (refused) {
      this.#enter("refused");
      return;
    }
    const most = Math.min(MOST_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.min(this.#attempt, 10));
    const wait = this.#attempt === 0 ? FIRST_RETRY_MS : Math.random() * most;
    this.#attempt += 1;
    this.#enter("waiting", { wait });
    this.#retryTimer = setTimeout(() => this.#dial(), wait);
  }

  #loseAll(message) {
    for (const generation of this.#live.values()) generation.receive(lost(message));
    this.#live.clear();
  }

  async #refused() {
    try {
      const headers = this.#key ? { Authorization: `Bearer ${this.#key}` } : {};
      const response = await fetch(new URL("v1/models", location.href), { headers, signal: AbortSignal.timeout(3000) });
      return response.status === 401;
    } catch {
      return false;
    }
  }

  #drop(code) {
    clearTimeout(this.#retryTimer);
    clearInterval(this.#pingTimer);
    const socket = this.#socket;
    this.#socket = null;
    this.hello = null;
    if (socket) {
      socket.onmessage = socket.onclose = null;
      if (code) socket.close(code);
    }
  }

  #send(frame) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(frame));
  }

  #enter(state, detail = {}) {
    this.state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: { state, hello: this.hello, ...detail } }));
  }
}

// One answer. Iterate over it for its events; it ends after "finished" or "error".
class Generation {
  #send;
  #events = [];
  #wake = null;
  #done = false;

  constructor(id, send) {
    this.id = id;
    this.#send = send;
  }

  // Asks for the end; the last event is then an error of reason "cancelled".
  cancel() {
    if (!this.#done) this.#send({ type: "cancel", id: this.id });
  }

  receive(event) {
    if (this.#done) return;
    this.#done = TERMINAL.has(event.type);
    this.#events.push(event);
    this.#wake?.();
  }

  async *[Symbol.asyncIterator]() {
    for (;;) {
      while (this.#events.length) {
        const event = this.#events.shift();
        yield event;
        if (TERMINAL.has(event.type)) return;
      }
      await new Promise((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

function lost(message) {
  return { type: "error", reason: "connection_lost", message, retryable: true };
}

function defaultUrl() {
  const url = new URL("v1/stream", location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.search = url.hash = "";
  return url;
}

// 128 random bits. `crypto.randomUUID` exists in secure contexts only, and a mesh in a local network is often none.
export function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function base64url(text) {
  const bytes = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
