// The page of the mesh: the picture, the same as a table, and what happened.

import { $, cell, make, rows } from "./dom.js";
import { number, say } from "./language.js";
import { shell } from "./shell.js";
import { watch } from "./watching.js";

function row(worker) {
  const state = cell("");
  state.append(make("span", `state ${worker.state}`, say(`state.${worker.state}`)));
  const waiting = Object.values(worker.lanes).reduce((sum, lane) => sum + lane.waiting, 0);
  return [
    cell(worker.id, false, "th"), state, cell(`${number(worker.running)} / ${number(worker.limit)}`, true), cell(number(waiting), true),
    cell(number(worker.rate), true), cell(worker.kv_used === null ? "–" : `${number(worker.kv_used * 100)} %`, true), cell(worker.models.join(", ")), cell(worker.engine),
  ];
}

shell();
watch((state) => {
  const rate = state.links.reduce((sum, link) => sum + link.rate, 0);
  const read = state.links.reduce((sum, { count }) => sum + count, 0);
  $("summary").textContent = say("mesh.summary", { streams: number(read), rate: number(rate), workers: number(state.workers.filter((worker) => worker.state === "ready").length) });
  rows($("workers"), state.workers.map(row));
  for (const head of $("workers").querySelectorAll("tbody th")) head.scope = "row";
});
