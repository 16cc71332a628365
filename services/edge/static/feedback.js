// What a reader thinks of an answer that came from the cache: two buttons under it, which tell the mesh.

import { say as text } from "./language.js";

const THUMB = "M7 11v9H4v-9zm0 0 4-8a2 2 0 0 1 2 2v4h5.4a2 2 0 0 1 2 2.3l-1.1 7a2 2 0 0 1-2 1.7H7";

function button(kind, text) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = `thumb ${kind}`;
  made.title = text;
  made.setAttribute("aria-label", text);
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("viewBox", "0 0 24 24");
  picture.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", THUMB);
  picture.append(path);
  made.append(picture);
  return made;
}

// Gives `{ element, update }` for an answer: `entry()` is the one in the cache that it came from, "" while there is none;
// `said()` and `note(opinion)` read and keep what was said of it, "good" or "bad"; `key()` is the API key.
export function opinion({ entry, said, note, key, base = document.baseURI }) {
  const element = document.createElement("div");
  element.className = "opinion";
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", text("opinion.group"));
  const status = document.createElement("span");
  status.setAttribute("role", "status");
  const buttons = { good: button("good", text("opinion.good")), bad: button("bad", text("opinion.bad")) };
  let sending = false;

  function update() {
    element.hidden = !entry();
    for (const [kind, each] of Object.entries(buttons)) {
      each.setAttribute("aria-pressed", String(said() === kind));
      // Not `disabled`, which would take the focus away from who has just pressed it.
      each.setAttribute("aria-disabled", String(Boolean(said())));
    }
  }
  async function say(kind) {
    if (said() || sending) return;
    sending = true;
    const headers = { "content-type": "application/json" };
    if (key()) headers.authorization = `Bearer ${key()}`;
    try {
      const url = new URL(`v1/cache/entries/${encodeURIComponent(entry())}/feedback`, base);
      const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify({ good: kind === "good" }) });
      if (answer.ok) note(kind);
      status.textContent = answer.ok ? text(`opinion.said.${kind}`)
        : answer.status === 404 ? text("opinion.gone") : answer.status === 429 ? text("opinion.often") : text("opinion.failed");
    } catch {
      status.textContent = text("opinion.failed");
    }
    sending = false;
    update();
  }
  for (const [kind, each] of Object.entries(buttons)) each.addEventListener("click", () => say(kind));
  element.append(buttons.good, buttons.bad, status);
  update();
  return { element, update };
}
