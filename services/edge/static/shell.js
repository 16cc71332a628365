// What every page of the console has at its top: the name, the way to the other pages, language, light or dark.

import { draw, make } from "./dom.js";
import { change, changes, localise, other, say } from "./language.js";

const PAGES = [["./", "nav.chat"], ["mesh.html", "nav.mesh"], ["tenants.html", "nav.tenants"], ["cache.html", "nav.cache"], ["failure.html", "nav.failure"]];
const WAVE = "c5-5 8 5 13 0s8 5 13 0";

function brand() {
  const link = make("a", "brand");
  link.href = "./";
  const mark = draw("svg", { class: "mark", viewBox: "0 0 32 32", "aria-hidden": "true" });
  for (const y of [10, 17, 24]) mark.append(draw("path", { d: `M3 ${y}${WAVE}` }));
  link.append(mark, make("b", "", "Streamway"));
  return link;
}

function pages() {
  const nav = make("nav", "pages");
  nav.dataset.tLabel = "nav.pages";
  const here = location.pathname.split("/").at(-1) || "./";
  for (const [href, name] of PAGES) {
    const link = make("a");
    link.href = href;
    link.dataset.t = name;
    if (href === here || (href === "./" && here === "index.html")) link.setAttribute("aria-current", "page");
    nav.append(link);
  }
  return nav;
}

function languageButton() {
  const button = make("button", "quiet");
  button.id = "language";
  button.type = "button";
  const name = () => {
    button.textContent = other().name;
    button.lang = other().tag;
  };
  button.addEventListener("click", change);
  changes.addEventListener("change", name);
  name();
  return button;
}

function themeButton() {
  const button = make("button", "quiet icon");
  button.id = "theme";
  button.type = "button";
  button.dataset.tTitle = "theme.title";
  button.dataset.tLabel = "theme.label";
  button.append(draw("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, draw("path", { d: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8z" })));
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    localStorage.setItem("streamway.theme", next);
    document.documentElement.dataset.theme = next;
  });
  return button;
}

// Fills the page's <header>; `parts` come in front of language and theme.
export function shell(...parts) {
  const theme = localStorage.getItem("streamway.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  const tools = make("div", "tools");
  tools.append(...parts, languageButton(), themeButton());
  document.querySelector("header").replaceChildren(brand(), pages(), tools);
  localise();
}

// The API key that the chat's settings keep for this tab.
export function keyHeaders() {
  const key = sessionStorage.getItem("streamway.key");
  return key ? { Authorization: `Bearer ${key}` } : {};
}

// JSON of the edge, or { problem } with the name of a text.
export async function ask(path) {
  try {
    const response = await fetch(path, { cache: "no-store", headers: keyHeaders() });
    if (response.status === 401) return { problem: "needs.key" };
    if (response.status === 403) return { problem: "needs.operator" };
    return response.ok ? await response.json() : { problem: "failed" };
  } catch {
    return { problem: "failed" };
  }
}

export function problemText(problem) {
  return problem ? say(problem) : "";
}
