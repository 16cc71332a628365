// Asks the edge about the mesh each second, while somebody looks.

import { $, make } from "./dom.js";
import { changes, say } from "./language.js";
import { MeshPicture } from "./mesh_picture.js";
import { MeshState } from "./mesh_state.js";
import { ask, problemText } from "./shell.js";

const EACH_MS = 1000;
const MOST_LINES = 50;

// Needs #picture (an svg), #problem and #happened (a list) on the page. `each(state)` is called after each look.
export function watch(each = () => {}) {
  const state = new MeshState();
  const picture = new MeshPicture($("picture"));
  let problem = "";
  let timer = 0;

  function show() {
    $("problem").textContent = problemText(problem);
    if (!state.store) return;
    picture.show(state);
    each(state);
  }

  async function look() {
    clearTimeout(timer);
    if (document.hidden) return;
    const told = await ask("v1/mesh");
    problem = told.problem ?? "";
    if (!problem) for (const said of state.update(told, performance.now())) note(say(said.name, said.values));
    show();
    timer = setTimeout(look, EACH_MS);
  }

  document.addEventListener("visibilitychange", look);
  changes.addEventListener("change", show);
  new ResizeObserver(show).observe($("picture").parentElement);
  look();
}

export function note(text) {
  const line = make("p");
  line.append(make("time", "", new Date().toLocaleTimeString()), ` ${text}`);
  const list = $("happened");
  list.prepend(line);
  while (list.children.length > MOST_LINES) list.lastChild.remove();
}
