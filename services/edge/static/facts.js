// What is told of one answer: kept from its events, shown under it.

import { make } from "./dom.js";
import { knows, number, say } from "./language.js";

// Puts an event into an answer. Gives the name of a text to be read out, or "".
export function take(turn, event, clock) {
  const { facts } = turn;
  switch (event.type) {
    case "accepted":
      Object.assign(facts, { worker: event.worker, cache: event.cache, queue: event.queue_position, model: event.model });
      Object.assign(facts, { durable: event.durability !== "off", ...hitOf(event), trace: traceOf(event.traceparent) });
      return "";
    case "started":
      facts.worker = event.worker;
      facts.queue = 0;
      if (event.cache) Object.assign(facts, { cache: event.cache, ...hitOf(event) });
      return "";
    case "taken_over":
      Object.assign(facts, { worker: event.worker, takenFrom: event.from_worker, queue: 0 });
      return "said.taken";
    case "token":
      token(turn, event, clock);
      return "";
    case "diverged":
      turn.text = event.text;
      return "said.diverged";
    case "resumed":
      if (!event.recovered) facts.gap = true;
      return "";
    case "finished":
      turn.state = "done";
      Object.assign(facts, { finish: event.finish_reason, truncated: event.truncated });
      if (event.usage?.completion_tokens) facts.tokens = event.usage.completion_tokens;
      if (event.usage?.from_cache) facts.rate = 0;
      facts.cost = event.usage?.cost;
      return "";
    case "error":
      turn.state = event.reason === "cancelled" ? "stopped" : "failed";
      turn.error = { reason: event.reason, message: event.message };
      return "";
    default:
      return "";
  }
}

// What an answer from the cache comes from, and what it saved.
function hitOf({ cache_hit: hit }) {
  return { entry: hit?.entry, saved: hit?.saved_tokens, savedMoney: hit?.saved_money };
}

function token(turn, event, clock) {
  const now = performance.now();
  const { facts } = turn;
  clock.first ||= now;
  clock.units += event.position - (event.first_position ?? event.position) + 1;
  facts.ttft ??= clock.first - clock.asked;
  facts.tokens = clock.before + clock.units;
  // The first token waits for the prompt, so the rate counts from it on.
  const seconds = (now - clock.first) / 1000;
  facts.rate = clock.units > 1 && seconds > 0.05 ? (clock.units - 1) / seconds : 0;
  facts.undurable = Boolean(event.not_durable);
  turn.text += event.text;
}

// The trace's id, where it is recorded: W3C's traceparent is version-trace-span-flags.
export function traceOf(traceparent = "") {
  const found = /^00-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})$/.exec(traceparent);
  return found && Number.parseInt(found[2], 16) & 1 ? found[1] : "";
}

// `traceUrl`: where a trace is shown, with {trace_id} in it; empty for none.
export function shownFacts({ facts, state }, traceUrl) {
  const shown = [];
  const add = (name, value, title = `fact.${name}.title`) => {
    const fact = make("span", "fact");
    fact.dataset.fact = name;
    fact.title = say(title);
    fact.append(make("span", "label", `${say(`fact.${name}`)} `), value instanceof Node ? value : make("strong", "", value));
    shown.push(fact);
  };
  if (facts.ttft) add("ttft", duration(facts.ttft));
  if (facts.rate) add("rate", say("fact.rate.value", { rate: number(facts.rate, 1) }));
  if (facts.tokens) add("length", say("fact.length.value", { tokens: number(facts.tokens) }));
  if (facts.worker) add("worker", facts.worker);
  if (facts.takenFrom) add("taken", say("fact.taken.value", { worker: facts.takenFrom }));
  if (facts.gap) add("gap", say("fact.gap.value"));
  if (facts.durable === false || facts.undurable) add("kept", say("fact.kept.value"));
  if (facts.cache && facts.cache !== "off") add("cache", facts.cache);
  if (facts.saved) add("saved", say("fact.length.value", { tokens: number(facts.saved) }));
  if (facts.savedMoney) add("money", number(facts.savedMoney, 6));
  // Where the model has no price nothing is known; an answer from the cache costs nothing, and that is known.
  if (facts.cost !== undefined && facts.cost !== null) add("cost", number(facts.cost, 6));
  if (facts.trace && traceUrl) add("trace", traceLink(facts.trace, traceUrl));
  if (facts.truncated === "memory") add("end", say("end.memory"), "end.memory.title");
  else if (facts.finish === "length") add("end", say("end.length"), "end.length.title");
  if (state === "stopped") add("end", say("end.stopped"), "end.stopped.title");
  if (state === "live" && !facts.ttft) {
    shown.push(make("span", "fact waiting", facts.queue ? say("wait.ahead", { ahead: facts.queue }) : say(facts.worker ? "wait.reading" : "wait.way")));
  }
  return shown;
}

function traceLink(id, template) {
  const link = make("a", "", say("fact.trace.value"));
  link.href = template.replaceAll("{trace_id}", id);
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  return link;
}

export function advice(reason) {
  return knows(`do.${reason}`) ? say(`do.${reason}`) : "";
}

export function duration(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;
}
