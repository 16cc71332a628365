// Which language the console speaks: what was chosen, else the browser's. The words are in texts.js.

import { TEXTS } from "./texts.js";

const COLUMNS = ["en", "zh"];
const TAGS = { en: "en", zh: "zh-CN" };
const KEPT = "streamway.language";

let language = first();

function first() {
  const kept = localStorage.getItem(KEPT);
  return COLUMNS.includes(kept) ? kept : navigator.language.startsWith("zh") ? "zh" : "en";
}

export const changes = new EventTarget(); // "change", after the page's own words were changed

// The text of a row, with {name} replaced. A name without a row is said as it is: reasons of errors and rules come from outside.
export function say(name, values = {}) {
  const row = TEXTS[name];
  if (!row) return name;
  return row[COLUMNS.indexOf(language)].replace(/\{(\w+)\}/g, (whole, key) => (key in values ? String(values[key]) : whole));
}

export function knows(name) {
  return Object.hasOwn(TEXTS, name);
}

// data-t is the text of an element, data-t-title its title, data-t-label its aria-label, data-t-placeholder that of a field.
export function localise(root = document) {
  for (const element of root.querySelectorAll("[data-t]")) element.textContent = say(element.dataset.t);
  for (const element of root.querySelectorAll("[data-t-title]")) element.title = say(element.dataset.tTitle);
  for (const element of root.querySelectorAll("[data-t-label]")) element.setAttribute("aria-label", say(element.dataset.tLabel));
  for (const element of root.querySelectorAll("[data-t-placeholder]")) element.placeholder = say(element.dataset.tPlaceholder);
  document.documentElement.lang = TAGS[language];
  const title = document.querySelector("title").dataset.name;
  document.title = title ? `Streamway: ${say(title)}` : "Streamway";
}

export function other() {
  return language === "en" ? { name: "中文", tag: "zh-CN" } : { name: "English", tag: "en" };
}

export function change() {
  language = language === "en" ? "zh" : "en";
  localStorage.setItem(KEPT, language);
  localise();
  changes.dispatchEvent(new Event("change"));
}

export function number(value, digits = 0) {
  return value.toLocaleString(TAGS[language], { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// How long ago, in words.
export function ago(ms) {
  const words = new Intl.RelativeTimeFormat(TAGS[language], { numeric: "auto" });
  const minutes = Math.round(ms / 60_000);
  if (minutes < 60) return words.format(-minutes, "minute");
  return minutes < 1440 ? words.format(-Math.round(minutes / 60), "hour") : words.format(-Math.round(minutes / 1440), "day");
}
