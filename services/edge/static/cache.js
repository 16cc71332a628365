// The page of the cache: asks /v1/cache, and shows what it says.

import { $, cell, make, rows as lines } from "./dom.js";
import { changes, knows, say as text } from "./language.js";
import { ask as fetched, shell } from "./shell.js";

let told = null;

const percent = (share, digits = 2) => `${(100 * share).toFixed(digits)} %`;

const say = (name, values) => text(`cache.${name}`, values);
const rows = (id, cells) => lines($(id), cells);

function status(text) {
  $("state").textContent = text;
}

function showLevels(stats) {
  const counts = { exact: stats.hits, folded: stats.folded_hits, semantic: stats.semantic_hits, miss: stats.misses, bypassed: stats.bypassed };
  const lookups = counts.exact + counts.folded + counts.semantic + counts.miss;
  $("rate").textContent = lookups ? say("rate", { share: percent(1 - counts.miss / lookups, 1), lookups }) : say("unasked");
  rows("levels", Object.entries(counts).map(([name, count]) => [
    cell(say(name)), cell(count, true), cell(name === "bypassed" || !lookups ? "" : percent(count / lookups, 1), true),
  ]));
}

function showSemantic(semantic) {
  const budget = percent(semantic.budget), bound = semantic.wrong_bound;
  $("bound").textContent = bound === undefined ? say("unknown", { budget }) : say("bound", { bound: percent(bound), budget });
  const { asked, wrong_served: wrong, audit_share: share } = semantic;
  $("served").textContent = asked ? say("served", { wrong: percent(wrong / asked), asked, share: percent(share, 0) }) : "";
  $("switch").hidden = !["off", "trial"].includes(semantic.state);
  $("switch").textContent = semantic.state === "off" ? say("off", { left: semantic.questions_left }) : say("trial");
  showCurve(semantic);
  const rules = Object.entries(semantic.refused).sort((one, other) => other[1] - one[1]);
  $("rules").textContent = rules.map(([rule, count]) => `${rule} ${count}`).join(", ") || say("nothing");
  rows("near", semantic.near.toReversed().map(({ question, near, similarity, finding }) => [
    cell(question), cell(near), cell(similarity.toFixed(3), true), cell(`${finding.rule}: ${finding.asked} / ${finding.stored}`),
  ]));
}

function showCurve({ history, threshold, source, asked }) {
  const last = Math.max(asked, 1), x = (question) => (600 * (question - 1)) / last, y = (value) => 155 - 150 * Math.max(0, (value - 0.6) / 0.4);
  const path = [];
  for (const [at, point] of history.entries()) {
    const end = x(history[at + 1]?.question ?? last + 1);
    // Where nothing was served there is a gap.
    if (point.threshold !== undefined) path.push(`M${x(point.question)} ${y(point.threshold)}H${end}`);
  }
  $("curve").firstElementChild.setAttribute("d", path.join(""));
  const now = say("now", { value: source === "closed" ? say("closed") : threshold.toFixed(3), questions: asked });
  $("curve-said").textContent = now;
  $("curve").setAttribute("aria-label", `${say("threshold")}: ${now}`);
}

function showLedger({ lines, balance }) {
  const line = ({ name, debit, count, tokens, money, seconds }, shown) => {
    const sign = debit ? -1 : 1;
    return [
      cell(knows(`cache.${name}`) ? say(name) : shown), cell(count ?? "", true), cell(sign * tokens || 0, true), cell((sign * money).toFixed(6), true),
      cell((sign * seconds).toFixed(2), true),
    ];
  };
  rows("ledger", [...lines.map((each) => line(each, each.name)), line({ ...balance, count: "" }, say("balance"))]);
  $("ledger").tBodies[0].lastElementChild.className = "balance";
}

function show() {
  if (!told) return;
  status(told.problem ? text(told.problem) : told.available ? "" : say("none"));
  const shown = !told.problem && told.available;
  $("shown").hidden = !shown;
  if (!shown) return;
  showLevels(told);
  $("semantic").hidden = !told.semantic;
  if (told.semantic) showSemantic(told.semantic);
  showLedger(told.savings ?? { lines: [], balance: { tokens: 0, money: 0, seconds: 0 } });
}

async function ask() {
  status(say("loading"));
  told = await fetched("v1/cache");
  show();
}

const again = make("button", "quiet");
again.id = "again";
again.type = "button";
again.dataset.t = "cache.again";
again.addEventListener("click", ask);
changes.addEventListener("change", show);
shell(again);
ask();
