// The page of tenants and lanes: what waits and runs by kind of lane, and what each tenant has used of its limits.

import { $, cell, make, rows } from "./dom.js";
import { changes, number, say } from "./language.js";
import { ask, problemText, shell } from "./shell.js";

const EACH_MS = 2000;
let timer = 0;
let told = null;
let mesh = null;

// A bar with its numbers beside it, which say the same.
function meter(used, limit) {
  const made = cell("");
  if (limit === null || limit === undefined) {
    made.textContent = say("unlimited");
    made.className = "soft";
    return made;
  }
  const share = Math.min(1, Math.max(0, used / limit));
  const bar = make("span", `bar${share > 0.9 ? " full" : ""}`);
  bar.setAttribute("aria-hidden", "true");
  const part = make("span");
  part.style.width = `${100 * share}%`;
  bar.append(part);
  made.append(bar, make("span", "of", say("used.of", { used: number(used), limit: number(limit) })));
  return made;
}

function line({ limits, used }, ...first) {
  const spent = (limit, left) => (limit === null ? 0 : limit - left);
  return [
    ...first, meter(used.slots, limits.concurrency), meter(spent(limits.requests_per_minute, used.requests_left), limits.requests_per_minute),
    meter(spent(limits.tokens_per_minute, used.tokens_left), limits.tokens_per_minute),
  ];
}

function tenantLines(tenant) {
  const name = cell(tenant.name, false, "th");
  name.scope = "row";
  if (tenant.name === told.mine) name.append(" ", make("span", "state ready", say("tenants.mine")));
  const tier = cell("");
  tier.append(make("span", `tier ${tenant.tier}`, say(`tier.${tenant.tier}`)));
  const models = tenant.models.map((each) => line(each, cell(`↳ ${each.model}`), cell(""), cell("")));
  return [line(tenant, name, tier, cell(number(tenant.weight), true)), ...models];
}

function showLanes() {
  $("lanes-part").hidden = !mesh;
  if (!mesh) return;
  const classes = ["gold", "silver", "bronze", "bulk"];
  const slots = mesh.workers.reduce((sum, { limit }) => sum + limit, 0);
  const running = mesh.workers.reduce((sum, worker) => sum + worker.running, 0);
  rows($("lanes"), classes.map((name) => {
    const of = (kind) => mesh.workers.reduce((sum, { lanes }) => sum + lanes[name][kind], 0);
    const pooled = mesh.pools.reduce((sum, { lanes }) => sum + lanes[name], 0);
    const head = cell("", false, "th");
    head.scope = "row";
    head.append(make("span", `tier ${name}`, say(`tier.${name}`)));
    return [head, cell(number(of("running")), true), cell(number(of("waiting")), true), cell(number(pooled), true), meter(of("running"), slots)];
  }));
  $("slots").textContent = say("lanes.slots", { running: number(running), slots: number(slots), workers: number(mesh.workers.length) });
}

function show() {
  if (!told) return;
  $("problem").textContent = problemText(told.problem);
  $("tenants-part").hidden = Boolean(told.problem);
  if (told.problem) return;
  rows($("tenants"), told.tenants.flatMap(tenantLines));
  showLanes();
}

async function look() {
  clearTimeout(timer);
  if (document.hidden) return;
  told = await ask("v1/tenants");
  const seen = told.operator ? await ask("v1/mesh") : { problem: "" };
  mesh = "problem" in seen ? null : seen;
  show();
  timer = setTimeout(look, EACH_MS);
}

shell();
changes.addEventListener("change", show);
document.addEventListener("visibilitychange", look);
look();
