// The chat: conversations with branches, kept in this browser; answers go on across a reload, also in their middle.

import { $, make } from "./dom.js";
import { take } from "./facts.js";
import { changes, say } from "./language.js";
import { Library } from "./library.js";
import { ask as fetched, shell } from "./shell.js";
import { sidebar } from "./sidebar.js";
import { StreamwayClient, randomId } from "./streamway.js";
import * as tree from "./tree.js";
import { copyText, turnView } from "./turns.js";

const log = $("log");
const question = $("question");
const client = new StreamwayClient();
const library = new Library(localStorage);
const views = new Map(); // by the id of a node of the conversation that is shown
const live = new Map(); // conversation's id → { conversation, node, generation }
let shown = library.load(sessionStorage.getItem("streamway.shown") ?? "") ?? fresh();
let modelAsked = sessionStorage.getItem("streamway.model") ?? "";
let traceUrl = "";

// ---------------------------------------------------------------- conversations

function fresh() {
  return tree.fresh(randomId(), randomId(), Date.now());
}

function keep(conversation = shown) {
  const running = live.get(conversation.id);
  if (running) running.node.saved = running.generation.saved;
  if (conversation.nodes.length && !library.save(conversation)) announce(say("chat.unkept"));
  sessionStorage.setItem("streamway.shown", shown.id);
  sessionStorage.setItem("streamway.live", JSON.stringify([...live.keys()]));
  sessionStorage.setItem("streamway.restore", client.restoreId);
}

const list = sidebar({
  rows: () => library.list(),
  shown: () => shown.id,
  live: (id) => live.has(id),
  open(id) {
    const found = live.get(id)?.conversation ?? library.load(id);
    if (found) enter(found);
  },
  rename(id, title) {
    const found = id === shown.id ? shown : (live.get(id)?.conversation ?? library.load(id));
    if (found) library.save(Object.assign(found, { title, named: true }));
  },
  remove(id) {
    live.get(id)?.generation.cancel();
    live.delete(id);
    library.remove(id);
    if (id === shown.id) enter(fresh());
    else list.show();
  },
  refresh: () => refresh(),
  clear() {
    for (const { generation } of live.values()) generation.cancel();
    live.clear();
    library.clear();
    enter(fresh());
  },
});

function enter(conversation) {
  shown = conversation;
  if ($("sidebar").matches(":popover-open")) $("sidebar").hidePopover();
  redraw();
  goOn(conversation);
  keep();
  scrollToEnd();
  question.focus();
}

// ---------------------------------------------------------------- asking

function params() {
  const given = {};
  const temperature = Number.parseFloat($("temperature").value);
  const most = Number.parseInt($("max-tokens").value, 10);
  if (Number.isFinite(temperature)) given.temperature = temperature;
  if (Number.isFinite(most)) given.max_tokens = most;
  return given;
}

function ask(text, parent = tree.path(shown).at(-1)?.id ?? 0) {
  answer(tree.add(shown, parent, { role: "user", text }));
}

function answer(asked) {
  const node = tree.add(shown, asked.id, { role: "assistant", text: "", state: "live", facts: {} });
  const messages = tree.messages(shown, node, $("system").value.trim());
  const request = { model: $("model").value, messages, params: params(), session: shown.session };
  if ($("cache").checked) request.cache = "exact"; // otherwise the router decides
  shown.updated = Date.now();
  follow(shown, node, client.open(request));
  redraw();
  scrollToEnd();
}

// An answer that was being made, by this page before a reload or by another tab, goes on where it was shown.
function goOn(conversation) {
  if (live.has(conversation.id)) return;
  const node = conversation.nodes.findLast(({ state, saved }) => state === "live" && saved);
  if (node) follow(conversation, node, client.resume(node.saved, node.text));
}

async function follow(conversation, node, generation) {
  const clock = { asked: performance.now(), first: 0, units: 0, before: node.facts.tokens ?? 0 };
  live.set(conversation.id, { conversation, node, generation });
  keep(conversation);
  refresh();
  const view = () => (conversation === shown ? views.get(node.id) : undefined);
  for await (const event of generation) {
    const said = take(node, event, clock);
    if (said && view()) announce(say(said));
    update(view());
    if (event.type === "accepted") keep(conversation);
  }
  delete node.saved;
  if (live.get(conversation.id)?.generation !== generation) return; // deleted meanwhile
  live.delete(conversation.id);
  if (view()) announce(node.state === "failed" ? node.error.message : say(node.state === "done" ? "said.done" : "said.stopped"));
  conversation.updated = Date.now();
  keep(conversation);
  if (view()) for (const each of views.values()) each.update(true);
  refresh();
}

function update(view) {
  if (!view) return;
  const stay = nearEnd();
  view.update();
  if (stay) requestAnimationFrame(scrollToEnd);
}

const acts = {
  branches: (node) => tree.branches(shown, node),
  busy: () => live.has(shown.id),
  last: (node) => tree.path(shown).at(-1) === node,
  traceUrl: () => traceUrl,
  key: () => $("key").value.trim(),
  opinion(node, kind) {
    node.opinion = kind;
    keep();
  },
  choose(node, step) {
    tree.choose(shown, node);
    keep();
    redraw();
    views.get(node.id)?.element.querySelector(`.icon-button.${step}`)?.focus();
  },
  edit: (node, text) => ask(text, node.parent),
  retry(node) {
    if (live.has(shown.id)) return;
    const asked = shown.nodes.find(({ id }) => id === node.parent);
    if (!node.text) tree.remove(shown, node); // nothing to go back to
    answer(asked);
  },
};

// ---------------------------------------------------------------- the page

function redraw() {
  views.clear();
  const made = tree.path(shown).map((node) => {
    const view = turnView(node, acts);
    views.set(node.id, view);
    return view.element;
  });
  log.replaceChildren(...made);
  refresh();
}

function refresh() {
  const running = live.has(shown.id);
  const ready = client.state === "open" && Boolean($("model").value);
  $("welcome").hidden = shown.nodes.length > 0;
  $("send").hidden = running;
  $("stop").hidden = !running;
  $("send").disabled = !ready || !question.value.trim();
  for (const idea of document.querySelectorAll(".ideas button")) idea.disabled = !ready;
  $("title").textContent = shown.title || say("chat.empty");
  list.show();
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

function models(names) {
  const select = $("model");
  const wanted = names.includes(modelAsked) ? modelAsked : names[0];
  select.replaceChildren(
    ...(names.length ? names : [""]).map((name) => {
      const option = make("option", "", name || say("model.none"));
      option.value = name;
      option.selected = name === wanted;
      return option;
    }),
  );
  select.disabled = names.length === 0;
}

function connection({ state, hello, wait, transport }) {
  const up = say(transport === "websocket" ? "connected" : `connected.${transport}`);
  const text = {
    connecting: say("connecting"),
    open: hello?.models.length ? up : say("connected.none", { state: up }),
    waiting: wait > 1000 ? say("waiting", { seconds: Math.ceil(wait / 1000) }) : say("reconnecting"),
    refused: say("refused"),
    closed: say("closed"),
  }[state];
  $("connection").dataset.state = state;
  $("connection").dataset.transport = transport;
  $("connection-text").textContent = text;
  if (state === "open") {
    models(hello.models);
    clearTimeout(connection.timer);
    // A mesh that is still loading tells its models only to a new connection.
    if (!hello.models.length) connection.timer = setTimeout(() => client.refresh(), 2000);
    configured();
  }
  if (state === "refused") openSettings();
  refresh();
}

// What the edge tells its console; asked once, by whoever is let in.
async function configured() {
  if (traceUrl) return;
  const told = await fetched("v1/console");
  if (!told.trace_url) return;
  traceUrl = told.trace_url;
  for (const view of views.values()) view.update(true);
}

function send() {
  const text = question.value.trim();
  if (!text || live.has(shown.id) || $("send").disabled) return;
  question.value = "";
  fit();
  ask(text);
}

function stop() {
  live.get(shown.id)?.generation.cancel();
}

function fit() {
  question.style.height = "auto";
  question.style.height = `${Math.min(question.scrollHeight, innerHeight * 0.4)}px`;
}

function openSettings() {
  if (!$("settings").open) $("settings").showModal();
}

// ---------------------------------------------------------------- what a person does

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
  $("send").disabled = client.state !== "open" || !$("model").value || !question.value.trim();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open], :popover-open")) stop();
});
$("stop").addEventListener("click", stop);
$("new").addEventListener("click", () => enter(fresh()));
$("model").addEventListener("change", () => {
  modelAsked = $("model").value;
  sessionStorage.setItem("streamway.model", modelAsked);
  refresh();
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
  if (event.target.tagName === "BUTTON" && !live.has(shown.id)) ask(event.target.textContent);
});
log.addEventListener("click", ({ target }) => {
  if (target.classList.contains("copy")) copyText(target.closest("figure").querySelector("code").textContent, target);
});
client.addEventListener("state", ({ detail }) => connection(detail));
client.addEventListener("error", ({ detail }) => announce(detail.message));
client.addEventListener("going_away", () => announce(say("leaving")));
client.addEventListener("restored", ({ detail }) => detail.cancel()); // of this tab, and no turn shows it any more
changes.addEventListener("change", () => {
  connection({ state: client.state, hello: client.hello, wait: 0, transport: client.transport });
  redraw();
});
addEventListener("storage", ({ key }) => {
  if (key === null || key === "streamway.conversations") list.show(); // another tab
});
addEventListener("pagehide", () => {
  for (const { conversation } of live.values()) keep(conversation);
  keep();
});

shell($("connection"));
try {
  const { cache, ...fields } = JSON.parse(sessionStorage.getItem("streamway.settings")) ?? {};
  for (const [id, value] of Object.entries(fields)) $(id).value = value;
  $("cache").checked = Boolean(cache);
} catch {
  // Not ours; the defaults stand.
}
$("key").value = sessionStorage.getItem("streamway.key") ?? "";
try {
  const before = JSON.parse(sessionStorage.getItem("streamway.live")) ?? [];
  for (const conversation of before.map((id) => (id === shown.id ? shown : library.load(id)))) if (conversation) goOn(conversation);
} catch {
  // Not ours; they end by their grace.
}
goOn(shown);
if (live.size) client.restore(sessionStorage.getItem("streamway.restore") ?? "");
redraw();
scrollToEnd();
client.connect({ key: $("key").value });
question.focus();
