// How questions and answers look, with what can be done about each.

import { icon, iconButton, make } from "./dom.js";
import { advice, shownFacts } from "./facts.js";
import { opinion } from "./feedback.js";
import { say } from "./language.js";
import { Markup } from "./markup.js";

// `acts`: branches(node) gives all at its place; choose(node), edit(node, text), retry(node); busy() while an answer is made;
// last(node); traceUrl(); key(); opinion(node, kind) keeps what was said of it. The view is { element, update(now) }.
export function turnView(node, acts) {
  const item = make("li", `turn ${node.role}`);
  item.append(make("span", "hidden", say(node.role === "user" ? "you.asked" : "model.answered")));
  const draw = node.role === "user" ? questionParts(item, node, acts) : answerParts(item, node, acts);
  let due = false;
  const now = () => {
    due = false;
    draw();
  };
  now();
  return {
    element: item,
    update(atOnce = false) {
      if (atOnce) now();
      else if (!due) {
        due = true; // many tokens may come within one frame of the screen
        requestAnimationFrame(now);
      }
    },
  };
}

function questionParts(item, node, acts) {
  const body = make("div", "body", node.text);
  const tools = make("div", "turn-tools");
  const edit = iconButton("pencil", say("edit"), () => openEditor(item, node, acts, edit));
  tools.append(edit, branchSwitch(node, acts));
  item.append(body, tools);
  return () => {
    tools.lastElementChild.replaceWith(branchSwitch(node, acts));
    edit.disabled = acts.busy();
  };
}

function openEditor(item, node, acts, edit) {
  if (item.querySelector("form")) return;
  const form = make("form", "editor");
  const field = make("textarea");
  field.value = node.text;
  field.rows = Math.min(10, node.text.split("\n").length + 1);
  field.setAttribute("aria-label", say("edit.field"));
  const ask = make("button", "primary", say("edit.ask"));
  const cancel = make("button", "quiet", say("chat.cancel"));
  cancel.type = "button";
  const close = () => {
    form.remove();
    item.classList.remove("editing");
    edit.focus();
  };
  cancel.addEventListener("click", close);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target === field) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (field.value.trim() && !acts.busy()) acts.edit(node, field.value.trim());
  });
  const buttons = make("div", "actions");
  buttons.append(cancel, ask);
  form.append(field, buttons);
  item.classList.add("editing");
  item.append(form);
  field.focus();
}

function branchSwitch(node, acts) {
  const all = acts.branches(node);
  const group = make("div", "branches");
  if (all.length < 2) return group;
  const at = all.indexOf(node);
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", say("branches"));
  const step = (name, label, to) => {
    const button = iconButton(name, say(label), () => acts.choose(all[to], name));
    button.disabled = !all[to] || acts.busy();
    return button;
  };
  const count = make("span", "", `${at + 1}/${all.length}`);
  count.setAttribute("aria-label", say("branch.at", { at: at + 1, all: all.length }));
  count.setAttribute("role", "img");
  group.append(step("back", "branch.back", at - 1), count, step("forth", "branch.forth", at + 1));
  return group;
}

function answerParts(item, node, acts) {
  const body = make("div", "body");
  const markup = new Markup(body);
  const facts = make("p", "facts");
  const trouble = make("div", "trouble");
  const tools = make("div", "turn-tools");
  const copy = iconButton("copy", say("copy.answer"), () => copyText(node.text, copy));
  const retry = iconButton("retry", say("retry"), () => acts.retry(node));
  tools.append(copy, retry, branchSwitch(node, acts));
  const thumbs = opinion({
    entry: () => (node.state === "done" ? node.facts.entry : ""),
    said: () => node.opinion,
    note: (kind) => acts.opinion(node, kind),
    key: acts.key,
  });
  item.append(body, facts, thumbs.element, trouble, tools);
  return () => {
    item.dataset.state = node.state;
    item.setAttribute("aria-busy", String(node.state === "live"));
    markup.update(node.text);
    facts.replaceChildren(...shownFacts(node, acts.traceUrl()));
    thumbs.update();
    tools.hidden = node.state === "live";
    copy.hidden = !node.text;
    retry.hidden = node.state !== "done";
    retry.disabled = acts.busy();
    tools.lastElementChild.replaceWith(branchSwitch(node, acts));
    trouble.replaceChildren(...troubleOf(node, acts));
  };
}

function troubleOf(node, acts) {
  if (node.state !== "failed" && !(node.state === "stopped" && acts.last(node))) return [];
  const parts = [];
  if (node.state === "failed") {
    parts.push(make("p", "what", node.error.message));
    if (advice(node.error.reason)) parts.push(make("p", "advice", advice(node.error.reason)));
  }
  if (acts.last(node)) {
    const again = make("button", "again", say("again"));
    again.type = "button";
    again.addEventListener("click", () => acts.retry(node));
    parts.push(again);
  }
  return parts;
}

export async function copyText(text, button) {
  let said = "copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    said = "copy.hand";
  }
  if (button.classList.contains("icon-button")) {
    button.title = say(said);
    button.setAttribute("aria-label", say(said));
    button.replaceChildren(icon("copy"), make("span", "", say(said)));
  } else button.textContent = say(said);
}
