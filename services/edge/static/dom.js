// Elements by hand: text never becomes markup.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== "") element.textContent = text;
  return element;
}

export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const ICONS = {
  plus: "M12 5v14M5 12h14",
  pencil: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  retry: "M19 12a7 7 0 1 1-2-5l2 2M19 4v5h-5",
  back: "M15 5l-7 7 7 7",
  forth: "M9 5l7 7-7 7",
  list: "M4 6h16M4 12h16M4 18h10",
};

export function icon(name) {
  return draw("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, draw("path", { d: ICONS[name] }));
}

// A button with a picture and a name that is read out and shown as its title.
export function iconButton(name, label, act) {
  const button = make("button", `icon-button ${name}`);
  button.type = "button";
  button.title = label;
  button.setAttribute("aria-label", label);
  button.append(icon(name));
  button.addEventListener("click", act);
  return button;
}

export function cell(text, number = false, tag = "td") {
  return make(tag, number ? "number" : "", String(text));
}

export function rows(table, lines) {
  table.tBodies[0].replaceChildren(...lines.map((cells) => {
    const row = make("tr");
    row.append(...cells);
    return row;
  }));
}
