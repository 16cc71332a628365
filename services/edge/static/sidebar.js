// The list of conversations: open, rename, delete.

import { $, iconButton, make } from "./dom.js";
import { ago, say } from "./language.js";

// `acts`: rows() as the library lists them; shown() is the id of the one on the page; live(id); open(id), rename(id, title),
// remove(id), clear(), refresh().
export function sidebar(acts) {
  const list = $("conversations");

  function show() {
    if (list.querySelector("input")) return; // somebody types a name
    const rows = acts.rows();
    list.replaceChildren(...rows.map(row));
    $("clear").hidden = rows.length === 0;
  }

  function row({ id, title, updated }) {
    const item = make("li");
    item.dataset.live = String(acts.live(id));
    const open = make("button", "open");
    open.type = "button";
    open.append(make("span", "title", title || say("chat.empty")), make("span", "when", ago(Date.now() - updated)));
    if (id === acts.shown()) open.setAttribute("aria-current", "true");
    open.addEventListener("click", () => acts.open(id));
    const name = title || say("chat.empty");
    const rename = iconButton("pencil", say("chat.rename"), () => renaming(item, id, title));
    const remove = iconButton("trash", say("chat.delete"), async () => {
      if (await sure(say("chat.sure", { name }))) acts.remove(id);
    });
    for (const button of [rename, remove]) button.setAttribute("aria-description", name);
    item.append(open, rename, remove);
    return item;
  }

  function renaming(item, id, title) {
    const field = make("input");
    field.value = title;
    field.maxLength = 100;
    field.setAttribute("aria-label", say("chat.name"));
    let over = false;
    const end = (keeps) => {
      if (over) return;
      over = true;
      if (keeps && field.value.trim()) acts.rename(id, field.value.trim());
      field.remove();
      acts.refresh();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") end(true);
      else if (event.key === "Escape") {
        event.stopPropagation();
        event.preventDefault(); // not the drawer as well
        end(false);
      }
    });
    field.addEventListener("blur", () => end(true));
    item.replaceChildren(field);
    field.select();
  }

  $("clear").addEventListener("click", async () => {
    if (await sure(say("chat.sure.all"))) acts.clear();
  });
  return { show };
}

function sure(question) {
  const dialog = $("sure");
  $("sure-question").textContent = question;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
