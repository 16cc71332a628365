// The transport ladder of streamway.js, without a network: events and times in, actions out.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Ladder, TIMES } from "../../services/edge/static/ladder.js";

const HALF = () => 0.5;

// A ladder that is up on a rung, and the time.
function up(rung = 0, random = HALF) {
  const ladder = new Ladder(random);
  ladder.rung = rung;
  ladder.receive({ type: "start" }, 0);
  ladder.receive({ type: "opened" }, 10);
  assert.equal(ladder.phase, "up");
  return ladder;
}

const done = (actions) => actions.map((action) => action.do);
const connects = (actions) => actions.filter((action) => action.do === "connect").map((action) => action.rung);

// Lets time pass as the client does: a tick whenever one is due. Returns what was done, with the time.
function pass(ladder, from, until, answer = () => {}) {
  const log = [];
  for (let now = ladder.due; now <= until; now = ladder.due) {
    now = Math.max(now, from);
    for (const action of ladder.receive({ type: "tick" }, now)) {
      log.push({ at: now, ...action });
      answer(action, now);
    }
  }
  return log;
}

test("it begins with the WebSocket and says so", () => {
  const ladder = new Ladder();
  assert.deepEqual(ladder.receive({ type: "start" }, 0), [
    { do: "state", state: "connecting", rung: 0, wait: 0 },
    { do: "connect", rung: 0 },
  ]);
  assert.deepEqual(ladder.receive({ type: "opened" }, 50), [{ do: "state", state: "open", rung: 0, wait: 0 }]);
});

test("a second start changes nothing", () => {
  assert.deepEqual(up().receive({ type: "start" }, 20), []);
});

test("the first reconnect comes after 100 ms, the next with full jitter up to 5 s", () => {
  for (const random of [0, 0.5, 1]) {
    const ladder = new Ladder(() => random);
    ladder.receive({ type: "start" }, 0);
    ladder.rung = 1; // its errors may be counted to three before it goes down
    let now = 0;
    const waits = [];
    for (let attempt = 0; attempt < 4; attempt += 1) {
      const said = ladder.receive({ type: "network_error" }, now).find((action) => action.do === "state");
      waits.push(said.wait);
      now = ladder.due;
      ladder.receive({ type: "tick" }, now);
    }
    assert.deepEqual(waits.slice(0, 3), [100, 200 * random, 400 * random]);
  }
  const ladder = new Ladder(() => 1, { ...TIMES, mostErrors: 1000 });
  ladder.receive({ type: "start" }, 0);
  for (let attempt = 0; attempt < 20; attempt += 1) {
    ladder.receive({ type: "network_error" }, ladder.due);
    ladder.receive({ type: "tick" }, ladder.due);
  }
  const [, said] = ladder.receive({ type: "network_error" }, ladder.due);
  assert.equal(said.wait, 5000);
});

test("three network errors are borne, the fourth goes one rung down", () => {
  const ladder = new Ladder(HALF);
  ladder.receive({ type: "start" }, 0);
  const rungs = [];
  for (let error = 0; error < 8; error += 1) {
    ladder.receive({ type: "network_error" }, ladder.due);
    rungs.push(...connects(ladder.receive({ type: "tick" }, ladder.due)));
  }
  assert.deepEqual(rungs, [0, 0, 0, 1, 1, 1, 1, 2]);
});

test("errors are counted in a row: a connection that came up begins anew", () => {
  const ladder = new Ladder(HALF);
  ladder.receive({ type: "start" }, 0);
  for (let round = 0; round < 5; round += 1) {
    for (let error = 0; error < 3; error += 1) {
      ladder.receive({ type: "network_error" }, ladder.due);
      ladder.receive({ type: "tick" }, ladder.due);
    }
    ladder.receive({ type: "opened" }, ladder.due - 1);
    ladder.receive({ type: "closed", abnormal: false }, ladder.due);
    ladder.receive({ type: "tick" }, ladder.due);
  }
  assert.equal(ladder.rung, 0);
});

test("what it does not know, such as an error of the application, changes nothing", () => {
  const ladder = up();
  assert.deepEqual(ladder.receive({ type: "application_error" }, 20), []);
  assert.equal(ladder.rung, 0);
  assert.equal(ladder.phase, "up");
});

test("a round trip over 800 ms goes down at once, one of 800 ms does not", () => {
  const ladder = up();
  assert.deepEqual(ladder.receive({ type: "rtt", ms: 800 }, 20), []);
  const actions = ladder.receive({ type: "rtt", ms: 801 }, 30);
  assert.deepEqual(done(actions), ["drop", "state"]);
  assert.deepEqual(connects(ladder.receive({ type: "tick" }, ladder.due)), [1]);
});

test("an abnormal close goes down after 100 ms, a normal one stays", () => {
  const abnormal = up();
  abnormal.receive({ type: "closed", abnormal: true }, 1000);
  assert.equal(abnormal.due, 1100);
  assert.deepEqual(connects(abnormal.receive({ type: "tick" }, 1100)), [1]);
  const normal = up();
  normal.receive({ type: "closed", abnormal: false }, 1000);
  assert.deepEqual(connects(normal.receive({ type: "tick" }, 1100)), [0]);
});

test("an edge that asks for another way gets the next one at once, and is asked for this one after a minute", () => {
  const ladder = new Ladder(HALF);
  ladder.receive({ type: "start" }, 0);
  const actions = ladder.receive({ type: "crowded" }, 20);
  assert.deepEqual(done(actions), ["drop", "state"]);
  assert.equal(ladder.due, 70);
  assert.deepEqual(connects(ladder.receive({ type: "tick" }, 70)), [1]);
  ladder.receive({ type: "opened" }, 100);
  const log = pass(ladder, 100, 121_000, (action, now) => {
    if (action.do === "rise") ladder.receive({ type: "rise_failed" }, now + 10);
  });
  assert.deepEqual(
    log.filter((action) => action.do === "rise").map((action) => action.at),
    [60_100, 120_110],
  );
  assert.equal(ladder.name, "sse");
});

test("errors of the network before are not counted beside", () => {
  const ladder = new Ladder(HALF);
  ladder.receive({ type: "start" }, 0);
  for (let error = 0; error < 3; error += 1) {
    ladder.receive({ type: "network_error" }, ladder.due);
    ladder.receive({ type: "tick" }, ladder.due);
  }
  ladder.receive({ type: "crowded" }, ladder.due - 1);
  ladder.receive({ type: "tick" }, ladder.due);
  assert.equal(ladder.name, "sse");
  ladder.receive({ type: "network_error" }, ladder.due - 1);
  assert.equal(ladder.name, "sse");
});

test("a connection that closes before it is up is a network error, no abnormal close", () => {
  const ladder = new Ladder(HALF);
  ladder.receive({ type: "start" }, 0);
  ladder.receive({ type: "closed", abnormal: true }, 10);
  assert.equal(ladder.rung, 0);
});

test("a connection that is not up after five seconds counts as an error", () => {
  const ladder = new Ladder(HALF);
  ladder.receive({ type: "start" }, 0);
  assert.equal(ladder.due, 5000);
  assert.deepEqual(ladder.receive({ type: "tick" }, 4999), []);
  assert.deepEqual(done(ladder.receive({ type: "tick" }, 5000)), ["drop", "state"]);
});

test("a WebSocket on which nothing came for 30 s is dead; frames and pongs keep it alive", () => {
  const ladder = up();
  const alive = pass(ladder, 10, 300_000, (action, now) => {
    if (action.do === "ping") ladder.receive({ type: "frame" }, now + 5);
  });
  assert.deepEqual([...new Set(done(alive))], ["ping"]);
  assert.equal(alive.length, 20); // each 15 s, the first at once
  const silent = pass(ladder, 300_000, 316_000);
  assert.deepEqual(connects(silent), [1]);
  assert.equal(silent.find((action) => action.do === "drop").at, 315_016);
});

test("after a minute of health it tries the rung above, and stays where that fails", () => {
  const ladder = up(2);
  const rises = [];
  pass(ladder, 10, 250_000, (action, now) => {
    if (action.do !== "rise") return;
    rises.push([now, action.rung]);
    ladder.receive({ type: "rise_failed" }, now + 500);
  });
  assert.deepEqual(rises, [
    [60_010, 1],
    [120_510, 1],
    [181_010, 1],
    [241_510, 1],
  ]);
  assert.equal(ladder.rung, 2);
});

test("it rises rung by rung, a minute each", () => {
  const ladder = up(2);
  const log = pass(ladder, 10, 200_000, (action, now) => {
    if (action.do === "rise") ladder.receive({ type: "risen", rung: action.rung }, now + 100);
    if (action.do === "ping") ladder.receive({ type: "frame" }, now + 1);
  });
  assert.deepEqual(
    log.filter((action) => action.do === "rise").map((action) => [action.at, action.rung]),
    [
      [60_010, 1],
      [120_110, 0],
    ],
  );
  assert.equal(ladder.rung, 0);
});

test("trouble starts the minute of health again, and ends a rise", () => {
  const ladder = up(1);
  pass(ladder, 10, 59_000);
  ladder.receive({ type: "network_error" }, 59_000);
  ladder.receive({ type: "tick" }, ladder.due);
  ladder.receive({ type: "opened" }, 59_300);
  const log = pass(ladder, 59_300, 119_400);
  assert.equal(log.find((action) => action.do === "rise").at, 119_300);
  ladder.receive({ type: "network_error" }, 119_500);
  assert.deepEqual(ladder.receive({ type: "risen", rung: 0 }, 119_600), []);
  assert.equal(ladder.rung, 1);
});

test("as long as the lowest rung is slow, it does not rise", () => {
  const ladder = up(2);
  const log = pass(ladder, 10, 600_000, (action, now) => {
    if (action.do === "ping") ladder.receive({ type: "rtt", ms: 900 }, now + 900);
  });
  assert.deepEqual([...new Set(done(log))], ["ping"]);
});

test("a long poll that failed is tried again after two seconds", () => {
  const ladder = up(2);
  ladder.receive({ type: "network_error" }, 1000);
  assert.equal(ladder.due, 3000);
});

test("a network that is back ends the wait", () => {
  const ladder = up(2);
  ladder.receive({ type: "network_error" }, 1000);
  assert.deepEqual(connects(ladder.receive({ type: "online" }, 1500)), [2]);
  assert.deepEqual(ladder.receive({ type: "online" }, 1600), []);
});

test("a stop drops the connection, and nothing is due any more", () => {
  const ladder = up();
  assert.deepEqual(done(ladder.receive({ type: "stop" }, 100)), ["drop", "state"]);
  assert.equal(ladder.due, Infinity);
  assert.deepEqual(ladder.receive({ type: "stop" }, 200), []);
  for (const type of ["opened", "network_error", "closed", "rtt", "tick", "risen"]) {
    assert.deepEqual(ladder.receive({ type, ms: 5000, rung: 0 }, 300), [], type);
  }
});
