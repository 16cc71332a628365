// The page of failures: streams that are read here, and buttons that kill or pause the workers that make them.

import { $, make } from "./dom.js";
import { changes, number, say } from "./language.js";
import { ask, keyHeaders, shell } from "./shell.js";
import { StreamwayClient } from "./streamway.js";
import { note, watch } from "./watching.js";

const STREAMS = 4;
const MOST_TOKENS = 2000;
const SHOWN_CHARS = 600;
const client = new StreamwayClient();
const running = new Set();
let rows = [];
let seen = "";

// ---------------------------------------------------------------- readers

function reader(number_) {
  const element = make("article", "reader");
  const head = make("p", "reader-head");
  const text = make("p", "reader-text");
  element.append(head, text);
  $("readers").append(element);
  const facts = { worker: "", tokens: 0, lastPosition: 0, state: "wait.way", taken: 0, wrong: 0 };
  let whole = "";
  const show = () => {
    element.dataset.state = facts.state;
    head.replaceChildren(
      make("strong", "", say("failure.stream", { number: number_ })), make("span", "", facts.worker),
      make("span", "", say("failure.positions", { count: number(facts.lastPosition) })),
      ...(facts.taken ? [make("span", "state ready", say("failure.taken", { count: facts.taken }))] : []),
      make("span", facts.wrong ? "state gone" : "soft", facts.wrong ? say("failure.wrong", { count: facts.wrong }) : say("failure.unbroken")),
    );
    text.textContent = whole.length > SHOWN_CHARS ? `… ${whole.slice(-SHOWN_CHARS)}` : whole;
    text.scrollTop = text.scrollHeight;
  };
  let due = false;
  const soon = () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      show();
    });
  };
  show();
  return async (generation) => {
    running.add(generation);
    for await (const event of generation) {
      if (event.position !== undefined) {
        // Each position once and in order: that is what is promised.
        if ((event.first_position ?? event.position) !== facts.lastPosition + 1) facts.wrong += 1;
        facts.lastPosition = event.position;
      }
      if (event.worker) facts.worker = event.worker;
      if (event.type === "token") whole += event.text;
      if (event.type === "diverged") whole = event.text;
      if (event.type === "taken_over") {
        facts.taken += 1;
        note(say("failure.note.taken", { number: number_, worker: event.worker, from: event.from_worker }));
      }
      facts.state = event.type === "error" ? "gone" : event.type === "finished" ? "done" : "live";
      if (event.type === "error" && event.reason !== "cancelled") note(event.message);
      soon();
    }
    running.delete(generation);
    refresh();
  };
}

function begin() {
  const model = client.hello?.models[0];
  if (!model) return;
  $("readers").replaceChildren();
  for (let at = 1; at <= STREAMS; at += 1) {
    const messages = [{ role: "user", content: say("failure.question", { number: at }) }];
    // Each a session of its own, so that they do not all go where the first one is.
    reader(at)(client.open({ model, messages, params: { max_tokens: MOST_TOKENS }, session: crypto.getRandomValues(new Uint32Array(2)).join("-"), cache: "off" }));
  }
  refresh();
}

function refresh() {
  $("begin").hidden = running.size > 0;
  $("end").hidden = running.size === 0;
  $("begin").disabled = client.state !== "open" || !client.hello?.models.length;
}

// ---------------------------------------------------------------- deeds

async function perform(name, deed) {
  let said = say("failed");
  try {
    const headers = { "Content-Type": "application/json", ...keyHeaders() };
    const answer = await fetch(`v1/failures/${encodeURIComponent(name)}`, { method: "POST", headers, body: JSON.stringify({ deed }) });
    const told = await answer.json();
    said = answer.ok ? say(`failure.did.${deed}`, { worker: name }) : told.error.message;
    if (answer.ok) told.workers && take(told);
  } catch {
    // As it says.
  }
  note(said);
}

function victim({ name, state }) {
  const item = make("li");
  item.append(make("strong", "", name), make("span", `state ${state}`, say(`victim.${state}`)));
  const button = (deed, kind) => {
    const made = make("button", kind, say(`failure.${deed}`));
    made.type = "button";
    made.dataset.deed = deed;
    made.setAttribute("aria-label", `${say(`failure.${deed}`)}: ${name}`);
    made.disabled = state === "down";
    made.addEventListener("click", () => perform(name, deed));
    return made;
  };
  item.append(button("kill", "primary danger"), state === "paused" ? button("go_on", "quiet") : button("pause", "quiet"));
  return item;
}

function take(told) {
  rows = told.workers;
  const now = JSON.stringify(rows);
  if (now === seen) return; // the button that has the focus stays
  seen = now;
  showVictims();
}

function showVictims() {
  const { deed, name } = { deed: document.activeElement?.dataset.deed, name: document.activeElement?.getAttribute("aria-label") };
  $("victims").replaceChildren(...rows.map(victim));
  if (deed) ([...$("victims").querySelectorAll("button")].find((each) => each.getAttribute("aria-label") === name) ?? $("begin")).focus();
}

async function look() {
  const told = await ask("v1/failures");
  $("unavailable").hidden = Boolean(told.problem) || told.available;
  $("trial").hidden = Boolean(told.problem) || !told.available;
  if (told.workers) take(told);
}

$("begin").addEventListener("click", begin);
$("end").addEventListener("click", () => {
  for (const generation of running) generation.cancel();
});
client.addEventListener("state", refresh);
changes.addEventListener("change", showVictims);
addEventListener("pagehide", () => {
  for (const generation of running) generation.cancel(); // nobody comes back for them
});
shell();
watch(look);
look();
client.connect({ key: sessionStorage.getItem("streamway.key") ?? "" });
