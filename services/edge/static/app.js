// The console: one conversation with one model, kept in this tab across a reload, also in the middle of an answer.

import { opinion } from "./feedback.js";
import { render } from "./markup.js";
import { StreamwayClient, randomId } from "./streamway.js";

const $ = (id) => document.getElementById(id);
const log = $("log");
const question = $("question");
const client = new StreamwayClient();

// What a person can do about an error. The server's own message stands above it.
const ADVICE = {
  unauthenticated: "Open the settings and enter an API key of this mesh.",
  context_length_exceeded: "Start a new chat, or ask something shorter.",
  too_large: "Start a new chat, or ask something shorter.",
  model_not_found: "Choose another model above.",
  queue_full: "The workers are busy. Try again in a moment, or start another worker.",
  no_workers: "No worker takes work now. If it was just started, its model may still be loading.",
  too_many_generations: "Wait until another answer has ended.",
  router_unavailable: "The mesh is starting or its router is down. Try again in a moment.",
  store_unavailable: "Valkey does not answer. Check that it runs, then try again.",
  engine_failed: "The engine broke. Its worker restarts it; try again in a moment.",
  worker_lost: "The worker is gone; another one, or the same after its restart, can answer.",
  takeover_unsupported: "The worker is gone, and no other can go on with this very answer. Ask again.",
  first_token_timeout: "The engine did not begin in time. Ask again.",
  engine_overloaded: "The engine has too much to do. Try again in a moment.",
  token_gap: "The worker fell silent in mid-answer. Ask again.",
  generation_not_found: "The mesh no longer keeps this answer. Ask again.",
  events_expired: "The mesh no longer keeps this answer. Ask again.",
  internal: "The log of the edge or router has more under the id in the message.",
};

let conversation = restored() ?? fresh();
const views = []; // by turn
let live = null; // the generation that is being shown
let modelAsked = sessionStorage.getItem("streamway.model") ?? "";

// ---------------------------------------------------------------- the conversation

function fresh() {
  return { session: randomId(), turns: [] };
}

// A turn is { role, text } and for an answer also { state, facts, error, saved, opinion }; state is live, done, stopped or failed.
// `saved` is what streamway.js needs to go on with a live one after a reload.
function restored() {
  try {
    const kept = JSON.parse(sessionStorage.getItem("streamway.conversation"));
    for (const turn of kept.turns) if (turn.state === "live" && !turn.saved) turn.state = "stopped";
    return kept;
  } catch {
    return null;
  }
}

function keep() {
  if (live) live.turn.saved = live.generation.saved;
  try {
    sessionStorage.setItem("streamway.conversation", JSON.stringify(conversation));
    sessionStorage.setItem("streamway.restore", client.restoreId);
  } catch {
    // Over the browser's quota: the conversation goes on, a reload loses it.
  }
}

function messages(until) {
  const system = $("system").value.trim();
  const turns = conversation.turns.slice(0, until).filter((turn) => turn.text && turn.state !== "failed");
  return [
    ...(system ? [{ role: "system", content: system }] : []),
    ...turns.map(({ role, text }) => ({ role, content: text })),
  ];
}

function params() {
  const given = {};
  const temperature = Number.parseFloat($("temperature").value);
  const most = Number.parseInt($("max-tokens").value, 10);
  if (Number.isFinite(temperature)) given.temperature = temperature;
  if (Number.isFinite(most)) given.max_tokens = most;
  return given;
}

function ask(text) {
  conversation.turns.push({ role: "user", text });
  show(conversation.turns.length - 1);
  answer();
}

function answer() {
  const index = conversation.turns.length;
  const turn = { role: "assistant", text: "", state: "live", facts: {} };
  const request = { model: $("model").value, messages: messages(index), params: params(), session: conversation.session };
  if ($("cache").checked) request.cache = "exact"; // otherwise the router decides
  conversation.turns.push(turn);
  show(index);
  follow(index, client.open(request));
  scrollToEnd();
}

// After a reload: an answer that was being made goes on where it was shown.
function goOn() {
  const index = conversation.turns.length - 1;
  const turn = conversation.turns[index];
  if (turn?.state !== "live") return;
  client.restore(sessionStorage.getItem("streamway.restore") ?? "");
  follow(index, client.resume(turn.saved, turn.text));
}

async function follow(index, generation) {
  const turn = conversation.turns[index];
  const view = views[index];
  const clock = { asked: performance.now(), first: 0, last: 0, units: 0, before: turn.facts.tokens ?? 0 };
  live = { generation, turn };
  keep();
  refresh();
  for await (const event of generation) {
    take(turn, event, clock);
    view.update();
    if (event.type === "accepted") keep();
  }
  delete turn.saved;
  if (live?.generation === generation) live = null;
  if (turn.state === "failed" && !turn.text) announce(turn.error.message);
  else announce(turn.state === "done" ? "The answer is complete." : "The answer was stopped.");
  view.update(true);
  keep();
  refresh();
}

function take(turn, event, clock) {
  const { facts } = turn;
  if (event.type === "accepted") {
    Object.assign(facts, { worker: event.worker, cache: event.cache, queue: event.queue_position, model: event.model });
    facts.durable = event.durability !== "off";
    facts.entry = event.cache_hit?.entry;
  } else if (event.type === "started" || event.type === "taken_over") {
    facts.worker = event.worker;
    facts.queue = 0;
    if (event.cache) Object.assign(facts, { cache: event.cache, entry: event.cache_hit?.entry });
    if (event.type === "taken_over") {
      facts.takenFrom = event.from_worker;
      announce("Another worker goes on with the answer.");
    }
  } else if (event.type === "token") {
    const now = performance.now();
    clock.first ||= now;
    clock.last = now;
    clock.units += event.position - (event.first_position ?? event.position) + 1;
    facts.ttft ??= clock.first - clock.asked;
    facts.tokens = clock.before + clock.units;
    // The first token waits for the prompt, so the rate counts from it on.
    const seconds = (clock.last - clock.first) / 1000;
    facts.rate = clock.units > 1 && seconds > 0.05 ? (clock.units - 1) / seconds : 0;
    facts.undurable = Boolean(event.not_durable);
    turn.text += event.text;
  } else if (event.type === "diverged") {
    turn.text = event.text;
    announce("The mesh lost the end of this answer; it is made again from there.");
  } else if (event.type === "resumed") {
    if (!event.recovered) facts.gap = true;
  } else if (event.type === "finished") {
    turn.state = "done";
    facts.finish = event.finish_reason;
    facts.truncated = event.truncated;
    if (event.usage?.completion_tokens) facts.tokens = event.usage.completion_tokens;
    if (event.usage?.from_cache) facts.rate = 0;
  } else if (event.type === "error") {
    turn.state = event.reason === "cancelled" ? "stopped" : "failed";
    turn.error = { reason: event.reason, message: event.message, retryable: event.retryable };
  }
}

// ---------------------------------------------------------------- how a turn looks

function show(index) {
  const turn = conversation.turns[index];
  const item = make("li", `turn ${turn.role}`);
  item.append(make("span", "hidden", turn.role === "user" ? "You asked:" : "The model answered:"));
  const body = make("div", "body");
  const facts = make("p", "facts");
  const trouble = make("div", "trouble");
  item.append(body);
  const thumbs = opinion({
    entry: () => (turn.state === "done" ? turn.facts.entry : ""),
    said: () => turn.opinion,
    note: (kind) => {
      turn.opinion = kind;
      keep();
    },
    key: () => $("key").value.trim(),
  });
  if (turn.role === "assistant") item.append(facts, thumbs.element, trouble);
  log.append(item);

  let drawn = false;
  function draw() {
    drawn = false;
    const stay = nearEnd();
    item.dataset.state = turn.state ?? "";
    item.setAttribute("aria-busy", String(turn.state === "live"));
    if (turn.role === "user") body.textContent = turn.text;
    else body.replaceChildren(render(turn.text));
    if (turn.role === "assistant") {
      facts.replaceChildren(...factsOf(turn));
      thumbs.update();
      trouble.replaceChildren(...troubleOf(turn, index));
    }
    if (stay) scrollToEnd();
  }
  function update(now = false) {
    if (now) draw();
    else if (!drawn) {
      drawn = true; // many tokens may come within one frame of the screen
      requestAnimationFrame(draw);
    }
  }
  draw();
  views[index] = { update };
  views[index - 1]?.update(true); // it is no longer the last, which alone can be asked again
  return views[index];
}

function factsOf({ facts, state }) {
  const shown = [];
  const add = (label, value, title) => {
    const fact = make("span", "fact", "");
    fact.title = title;
    fact.append(make("span", "label", `${label} `), make("strong", "", value));
    shown.push(fact);
  };
  if (facts.ttft) add("first token", duration(facts.ttft), "From sending the question to the first token");
  if (facts.rate) add("speed", `${facts.rate.toFixed(1)} tokens/s`, "Tokens per second after the first one");
  if (facts.tokens) add("length", `${facts.tokens} tokens`, "Tokens of this answer");
  if (facts.worker) add("worker", facts.worker, "The worker that made this answer");
  if (facts.takenFrom) add("taken over", `from ${facts.takenFrom}`, "That worker was lost; another went on with its answer");
  if (facts.gap) add("gap", "a part is lost", "The mesh no longer had what came before this part");
  if (facts.durable === false || facts.undurable) {
    add("kept", "not durable", "The store did not answer: what comes now would not survive the loss of its worker");
  }
  if (facts.cache && facts.cache !== "off") add("cache", facts.cache, "What the cache said to this question");
  if (facts.truncated === "memory") add("end", "cut: the worker is short of memory", "Ask for the rest, or ask again later");
  else if (facts.finish === "length") add("end", "cut at the token limit", "The model had more to say");
  if (state === "stopped") add("end", "stopped", "Stopped before its end");
  if (state === "live" && !facts.ttft) {
    const ahead = facts.queue ? `waiting, ${facts.queue} ahead` : facts.worker ? "reading your question" : "on its way";
    shown.push(make("span", "fact waiting", ahead));
  }
  return shown;
}

function troubleOf(turn, index) {
  const last = index === conversation.turns.length - 1;
  if (turn.state !== "failed" && !(turn.state === "stopped" && last)) return [];
  const parts = [];
  if (turn.state === "failed") {
    parts.push(make("p", "what", turn.error.message));
    if (ADVICE[turn.error.reason]) parts.push(make("p", "advice", ADVICE[turn.error.reason]));
  }
  if (last) {
    const again = make("button", "again", "Ask again");
    again.type = "button";
    again.addEventListener("click", () => {
      if (live) return;
      conversation.turns.pop();
      log.lastElementChild.remove();
      answer();
    });
    parts.push(again);
  }
  return parts;
}

function make(tag, className, text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}

function duration(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

function nearEnd() {
  const page = document.scrollingElement;
  return page.scrollHeight - page.scrollTop - page.clientHeight < 120;
}

function scrollToEnd() {
  document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight;
}

function announce(text) {
  $("announcer").textContent = text;
}

// ---------------------------------------------------------------- the page around it

function refresh() {
  const empty = conversation.turns.length === 0;
  $("welcome").hidden = !empty;
  $("send").hidden = live !== null;
  $("stop").hidden = live === null;
  $("send").disabled = client.state !== "open" || !$("model").value || !question.value.trim();
  for (const idea of document.querySelectorAll(".ideas button")) idea.disabled = client.state !== "open" || !$("model").value;
}

function redraw() {
  log.replaceChildren();
  views.length = 0;
  conversation.turns.forEach((_, index) => show(index));
  refresh();
}

function models(names) {
  const select = $("model");
  const wanted = names.includes(modelAsked) ? modelAsked : names[0];
  select.replaceChildren(
    ...(names.length ? names : [""]).map((name) => {
      const option = make("option", "", name || "no model yet");
      option.value = name;
      option.selected = name === wanted;
      return option;
    }),
  );
  select.disabled = names.length === 0;
}

function connection({ state, hello, wait, transport }) {
  const by = { websocket: "", sse: " by server-sent events", poll: " by long polls" }[transport];
  const text = {
    connecting: "connecting",
    open: `connected${by}${hello?.models.length ? "" : ", no model yet"}`,
    waiting: wait > 1000 ? `offline, next try in ${Math.ceil(wait / 1000)} s` : "reconnecting",
    refused: "needs an API key",
    closed: "offline",
  }[state];
  $("connection").dataset.state = state;
  $("connection").dataset.transport = transport;
  $("connection-text").textContent = text;
  if (state === "open") {
    models(hello.models);
    clearTimeout(connection.timer);
    // A mesh that is still loading tells its models only to a new connection.
    if (!hello.models.length) connection.timer = setTimeout(() => client.refresh(), 2000);
  }
  if (state === "refused") openSettings();
  refresh();
}

function send() {
  const text = question.value.trim();
  if (!text || live || $("send").disabled) return;
  question.value = "";
  fit();
  ask(text);
}

function stop() {
  live?.generation.cancel();
}

function fit() {
  question.style.height = "auto";
  question.style.height = `${Math.min(question.scrollHeight, innerHeight * 0.4)}px`;
}

function openSettings() {
  if (!$("settings").open) $("settings").showModal();
}

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
question.addEventListener("keydown", (event) => {
  // While an input method composes a character, Enter belongs to it.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
question.addEventListener("input", () => {
  fit();
  refresh();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && live && !$("settings").open) stop();
});
$("stop").addEventListener("click", stop);
$("new").addEventListener("click", () => {
  stop();
  live = null;
  conversation = fresh();
  keep();
  redraw();
  question.focus();
});
$("model").addEventListener("change", () => {
  modelAsked = $("model").value;
  sessionStorage.setItem("streamway.model", modelAsked);
  refresh();
});
$("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = dark ? "light" : "dark";
  localStorage.setItem("streamway.theme", name);
  theme(name);
});
$("settings-open").addEventListener("click", openSettings);
$("settings").addEventListener("close", () => {
  const kept = Object.fromEntries(["system", "temperature", "max-tokens"].map((id) => [id, $(id).value]));
  sessionStorage.setItem("streamway.settings", JSON.stringify({ ...kept, cache: $("cache").checked }));
  sessionStorage.setItem("streamway.key", $("key").value.trim());
  client.connect({ key: $("key").value.trim() });
  question.focus();
});
document.querySelector(".ideas").addEventListener("click", (event) => {
  if (event.target.tagName === "BUTTON" && !live) ask(event.target.textContent);
});
log.addEventListener("click", async (event) => {
  if (!event.target.classList.contains("copy")) return;
  const code = event.target.closest("figure").querySelector("code").textContent;
  try {
    await navigator.clipboard.writeText(code);
    event.target.textContent = "Copied";
  } catch {
    event.target.textContent = "Select and copy by hand";
  }
});
client.addEventListener("state", ({ detail }) => connection(detail));
client.addEventListener("error", ({ detail }) => announce(detail.message));
client.addEventListener("going_away", () => announce("This connection ends; the page connects again."));
client.addEventListener("restored", ({ detail }) => detail.cancel()); // of this tab, and no turn shows it any more
addEventListener("pagehide", keep);

theme(localStorage.getItem("streamway.theme"));
try {
  const { cache, ...fields } = JSON.parse(sessionStorage.getItem("streamway.settings")) ?? {};
  for (const [id, value] of Object.entries(fields)) $(id).value = value;
  $("cache").checked = Boolean(cache);
} catch {
  // Not ours; the defaults stand.
}
$("key").value = sessionStorage.getItem("streamway.key") ?? "";
redraw();
scrollToEnd();
goOn();
client.connect({ key: $("key").value });
question.focus();
