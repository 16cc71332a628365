// Markdown as DOM nodes. `marked` only reads it (vendor/): its tokens become elements here, and text never becomes HTML, so an
// answer cannot inject anything. Nothing is loaded that an answer names: images become links.

import { make } from "./dom.js";
import { say } from "./language.js";
import { Lexer } from "./vendor/marked.js";

// What is longer, or takes longer to read, is shown as it was written: reading some hostile texts takes the square of their
// length, and an answer is read anew with each token.
const MOST_CHARS = 300_000;
const MOST_LINE_CHARS = 4_000;
const MOST_MS = 100;
const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };

class BoundedLexer extends Lexer {
  #until = performance.now() + MOST_MS;

  inlineTokens(text, tokens = []) {
    if (text.length <= MOST_LINE_CHARS && performance.now() < this.#until) return super.inlineTokens(text, tokens);
    tokens.push({ type: "text", raw: text, text });
    return tokens;
  }
}

// Shows a text that grows in an element. Blocks that have not changed stay, with what a reader has selected in them.
export class Markup {
  #element;
  #raws = [];

  constructor(element) {
    this.#element = element;
  }

  update(text) {
    const tokens = read(text);
    let same = 0;
    while (same < tokens.length && this.#raws[same] === tokens[same].raw) same += 1;
    while (this.#element.childNodes.length > same) this.#element.lastChild.remove();
    this.#element.append(...tokens.slice(same).map(block));
    this.#raws = tokens.map(({ raw }) => raw);
  }
}

export function render(text) {
  const fragment = document.createDocumentFragment();
  fragment.append(...read(text).map(block));
  return fragment;
}

function read(text) {
  if (text.length <= MOST_CHARS) {
    try {
      return new BoundedLexer({ gfm: true }).lex(text).filter(({ type }) => type !== "space" && type !== "def");
    } catch {
      // Nested too deeply, for instance.
    }
  }
  return [{ type: "html", raw: text, block: true }];
}

function block(token) {
  switch (token.type) {
    case "heading":
      return filled(`h${Math.min(6, token.depth + 1)}`, token.tokens);
    case "paragraph":
      return filled("p", token.tokens);
    case "code":
      return code(token.text, token.lang?.match(/^[\w+#.-]{1,30}/)?.[0]);
    case "blockquote":
      return holding("blockquote", token.tokens);
    case "list":
      return list(token);
    case "table":
      return table(token);
    case "hr":
      return make("hr");
    default: // a line of a list, and HTML, as it was written
      return token.tokens ? filled(token.type === "text" ? "span" : "p", token.tokens) : make("p", "", token.raw.trimEnd());
  }
}

function holding(tag, tokens) {
  const element = make(tag);
  element.append(...tokens.filter(({ type }) => type !== "space" && type !== "def").map(block));
  return element;
}

function filled(tag, tokens) {
  const element = make(tag);
  element.append(...tokens.map(inline));
  return element;
}

function inline(token) {
  switch (token.type) {
    case "strong":
    case "em":
    case "del":
      return filled(token.type, token.tokens);
    case "codespan":
      return make("code", "", token.text);
    case "br":
      return make("br");
    case "link":
      return linked(token.href, token.tokens.map(inline), token.raw);
    case "image":
      return linked(token.href, [say("image", { name: token.text || token.href })], token.raw);
    case "html":
      return document.createTextNode(token.raw);
    case "checkbox":
      return document.createTextNode(token.checked ? "☑ " : "☐ ");
    default:
      return token.tokens ? filled("span", token.tokens) : document.createTextNode(decoded(token.text));
  }
}

function linked(href, children, raw) {
  let url;
  try {
    url = new URL(href);
  } catch {
    return document.createTextNode(raw); // also what is relative: an answer knows no page here
  }
  if (!SCHEMES.has(url.protocol)) return document.createTextNode(raw);
  const link = make("a");
  link.href = url.href;
  link.title = url.href; // where it leads, whatever it says
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
  link.append(...children);
  return link;
}

function list(token) {
  const element = make(token.ordered ? "ol" : "ul");
  if (token.ordered && token.start !== 1 && token.start !== "") element.start = token.start;
  for (const item of token.items) {
    const line = make("li");
    for (const part of item.tokens) {
      if (part.type === "space") continue;
      if (part.type === "text" && !item.loose) line.append(...(part.tokens ?? [part]).map(inline));
      else if (part.type === "text") line.append(filled("p", part.tokens ?? [part]));
      else line.append(part.type === "checkbox" ? inline(part) : block(part));
    }
    element.append(line);
  }
  return element;
}

function table(token) {
  const scroll = make("div", "scroll");
  scroll.tabIndex = 0;
  const element = make("table");
  const line = (cells, tag) => {
    const row = make("tr");
    for (const each of cells) {
      const made = filled(tag, each.tokens);
      if (each.align) made.className = each.align;
      row.append(made);
    }
    return row;
  };
  const head = make("thead");
  head.append(line(token.header, "th"));
  const body = make("tbody");
  body.append(...token.rows.map((cells) => line(cells, "td")));
  element.append(head, body);
  scroll.append(element);
  return scroll;
}

function code(text, language) {
  const figure = make("figure", "code");
  const caption = make("figcaption");
  const copy = make("button", "copy", say("copy"));
  copy.type = "button";
  caption.append(make("span", "", language || say("code")), copy);
  const pre = make("pre");
  pre.tabIndex = 0;
  pre.append(make("code", "", text));
  figure.append(caption, pre);
  return figure;
}

function decoded(text) {
  return text.replace(/&(?:(amp|lt|gt|quot|apos|nbsp)|#(\d{1,7})|#x([\da-f]{1,6}));/gi, (whole, name, decimal, hex) => {
    if (name) return ENTITIES[name.toLowerCase()];
    const point = decimal ? Number(decimal) : Number.parseInt(hex, 16);
    return point > 0 && point <= 0x10ffff ? String.fromCodePoint(point) : whole;
  });
}
