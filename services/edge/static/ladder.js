// How streamway.js reaches the mesh: what happened and when → what to do. No I/O, no clock, no chance of its own.
//
//   websocket ──► sse ──► poll      one rung down: a round trip over 800 ms, more than three network errors in a row, an
//             ◄──     ◄──           abnormal close, or an edge that asks for it. One rung up after 60 s of health.
//
//   idle ──start──► connecting ──opened──► up ──closed, error──► waiting ──due──► connecting
//
// `receive(event, now)` gives actions in order; `due` says when to send the next "tick". All times in milliseconds.
//
//   events   start · stop · online · tick · opened · frame · rtt{ms} · network_error · closed{abnormal} · crowded · risen ·
//            rise_failed
//   actions  connect{rung} · drop · ping · rise{rung} · state{state, rung, wait}
//
// What is said of a rung that is no longer the present one must not be passed on. Errors of the application (a refused
// request, a wrong key) are no event here: another way would not help.

export const RUNGS = ["websocket", "sse", "poll"];

export const TIMES = {
  slowMs: 800, // a longer round trip is too long for this rung
  mostErrors: 3,
  deadMs: 30_000, // a connection on which nothing came for this long is dead
  pingMs: 15_000,
  connectMs: 5_000, // a connection that is not up by then never will be
  firstRetryMs: 100,
  mostRetryMs: 5_000,
  pollRetryMs: 2_000,
  healthMs: 60_000,
};

export class Ladder {
  #random;
  #times;
  #errors = 0; // in a row
  #attempt = 0; // reconnects in a row
  #since = 0; // of the present phase
  #retryAt = 0;
  #pingAt = 0;
  #lastFrame = 0;
  #healthySince = 0;
  #rising = false;
  rung = 0; // index into RUNGS
  phase = "idle"; // idle, connecting, up, waiting

  // `random` gives numbers from 0 to 1.
  constructor(random = Math.random, times = TIMES) {
    this.#random = random;
    this.#times = times;
  }

  get name() {
    return RUNGS[this.rung];
  }

  // When the next tick is due; Infinity while nothing is.
  get due() {
    const times = this.#times;
    if (this.phase === "connecting") return this.#since + times.connectMs;
    if (this.phase === "waiting") return this.#retryAt;
    if (this.phase !== "up") return Infinity;
    const rise = this.rung > 0 && !this.#rising ? this.#healthySince + times.healthMs : Infinity;
    const dead = this.rung === 0 ? this.#lastFrame + times.deadMs + 1 : Infinity;
    return Math.min(this.#pingAt, rise, dead);
  }

  receive(event, now) {
    const handler = this[`_${event.type}`];
    return handler ? handler.call(this, event, now) : [];
  }

  _start(_, now) {
    return this.phase === "idle" ? this.#connect(now) : [];
  }

  _stop() {
    if (this.phase === "idle") return [];
    this.phase = "idle";
    this.#rising = false;
    this.#errors = this.#attempt = 0;
    return [{ do: "drop" }, this.#told("closed")];
  }

  // The system has a network again: no reason to sit the wait out.
  _online(_, now) {
    return this.phase === "waiting" ? this.#connect(now) : [];
  }

  _opened(_, now) {
    if (this.phase !== "connecting") return [];
    this.#up(now);
    return [this.#told("open")];
  }

  _frame(_, now) {
    this.#lastFrame = now;
    return [];
  }

  _rtt({ ms }, now) {
    if (this.phase !== "up" || ms <= this.#times.slowMs) return [];
    if (this.rung === RUNGS.length - 1) {
      this.#healthySince = now; // nothing further down; and no way up as long as it is slow
      return [];
    }
    this.#down();
    return [{ do: "drop" }, ...this.#wait(now, 0)];
  }

  _network_error(_, now) {
    if (this.phase !== "connecting" && this.phase !== "up") return [];
    this.#errors += 1;
    const delay = this.#delay();
    this.#attempt += 1;
    if (this.#errors > this.#times.mostErrors) this.#down();
    return [{ do: "drop" }, ...this.#wait(now, delay)];
  }

  _closed({ abnormal }, now) {
    if (this.phase !== "up") return this._network_error({}, now);
    if (abnormal) this.#down();
    this.#attempt = 1;
    return [{ do: "drop" }, ...this.#wait(now, this.#times.firstRetryMs)];
  }

  // The edge takes no more connections of this kind for now: the next rung at once, and this one after a minute at the earliest.
  _crowded(_, now) {
    if (this.phase !== "connecting" && this.phase !== "up") return [];
    this.#down();
    this.#attempt = 0;
    return [{ do: "drop" }, ...this.#wait(now, this.#random() * this.#times.firstRetryMs)];
  }

  _risen({ rung }, now) {
    if (this.phase !== "up" || !this.#rising) return [];
    this.rung = rung;
    this.#up(now);
    return [this.#told("open")];
  }

  _rise_failed(_, now) {
    this.#rising = false;
    this.#healthySince = now;
    return [];
  }

  _tick(_, now) {
    const times = this.#times;
    if (this.phase === "connecting") return now >= this.#since + times.connectMs ? this._network_error({}, now) : [];
    if (this.phase === "waiting") return now >= this.#retryAt ? this.#connect(now) : [];
    if (this.phase !== "up") return [];
    if (this.rung === 0 && now - this.#lastFrame > times.deadMs) return this._closed({ abnormal: true }, now);
    const actions = [];
    if (now >= this.#pingAt) {
      this.#pingAt = now + times.pingMs;
      actions.push({ do: "ping" });
    }
    if (this.rung > 0 && !this.#rising && now - this.#healthySince >= times.healthMs) {
      this.#rising = true;
      actions.push({ do: "rise", rung: this.rung - 1 });
    }
    return actions;
  }

  #connect(now) {
    this.phase = "connecting";
    this.#since = now;
    return [this.#told("connecting"), { do: "connect", rung: this.rung }];
  }

  #up(now) {
    this.phase = "up";
    this.#since = this.#lastFrame = this.#healthySince = now;
    this.#pingAt = now; // the first round trip is measured at once
    this.#errors = this.#attempt = 0;
    this.#rising = false;
  }

  #wait(now, delay) {
    this.phase = "waiting";
    this.#since = now;
    this.#retryAt = now + delay;
    this.#rising = false;
    return [this.#told("waiting", delay)];
  }

  #down() {
    this.#errors = 0;
    if (this.rung < RUNGS.length - 1) this.rung += 1;
  }

  // First soon, then with full jitter, so that a thousand clients do not come back in one moment.
  #delay() {
    const times = this.#times;
    if (this.rung === RUNGS.length - 1) return times.pollRetryMs;
    if (this.#attempt === 0) return times.firstRetryMs;
    return this.#random() * Math.min(times.mostRetryMs, times.firstRetryMs * 2 ** Math.min(this.#attempt, 10));
  }

  #told(state, wait = 0) {
    return { do: "state", state, rung: this.rung, wait };
  }
}
