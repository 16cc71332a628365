// The little Markdown that models write, as DOM nodes. Text never becomes HTML, so an answer cannot inject anything.

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+-]*)/;
const HEADING = /^#{1,6}\s+(.*)$/;
const BULLET = /^\s{0,6}[-*+]\s+(.*)$/;
const NUMBERED = /^\s{0,6}(\d{1,3})[.)]\s+(.*)$/;
const INLINE = /(`[^`\n]+`|\*\*[^*\n]+?\*\*|\*[^*\s][^*\n]*?\*)/;

export function render(text) {
  const fragment = document.createDocumentFragment();
  const lines = text.split("\n");
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (fence) {
      const end = lines.findIndex((other, index) => index > at && other.trim() === fence[1]);
      const last = end < 0 ? lines.length : end;
      fragment.append(codeBlock(lines.slice(at + 1, last).join("\n"), fence[2]));
      at = last + 1;
    } else if (!line.trim()) {
      at += 1;
    } else if (heading) {
      fragment.append(filled("h3", heading[1]));
      at += 1;
    } else if (BULLET.test(line) || NUMBERED.test(line)) {
      at = list(fragment, lines, at);
    } else {
      const start = at;
      while (at < lines.length && lines[at].trim() && !FENCE.test(lines[at]) && !HEADING.test(lines[at]) && (at === start || !isItem(lines[at]))) at += 1;
      fragment.append(filled("p", lines.slice(start, at).join("\n")));
    }
  }
  return fragment;
}

function isItem(line) {
  return BULLET.test(line) || NUMBERED.test(line);
}

function list(fragment, lines, at) {
  const numbered = NUMBERED.exec(lines[at]);
  const kind = numbered ? NUMBERED : BULLET;
  const element = document.createElement(numbered ? "ol" : "ul");
  if (numbered) element.start = Number(numbered[1]);
  for (;;) {
    // Blank lines between items do not end the list.
    let next = at;
    while (next < lines.length && !lines[next].trim()) next += 1;
    const item = next < lines.length ? kind.exec(lines[next]) : null;
    if (!item) break;
    const content = [item.at(-1)];
    at = next + 1;
    while (at < lines.length && lines[at].trim() && !isItem(lines[at]) && !FENCE.test(lines[at])) {
      content.push(lines[at].trim());
      at += 1;
    }
    element.append(filled("li", content.join("\n")));
  }
  fragment.append(element);
  return at;
}

function filled(tag, text) {
  const element = document.createElement(tag);
  for (const part of text.split(INLINE)) {
    if (!part) continue;
    if (part.length > 2 && part.startsWith("`") && part.endsWith("`")) element.append(plain("code", part.slice(1, -1)));
    else if (part.length > 4 && part.startsWith("**") && part.endsWith("**")) element.append(plain("strong", part.slice(2, -2)));
    else if (part.length > 2 && part.startsWith("*") && part.endsWith("*")) element.append(plain("em", part.slice(1, -1)));
    else element.append(part);
  }
  return element;
}

function plain(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}

function codeBlock(code, language) {
  const block = document.createElement("figure");
  block.className = "code";
  const caption = document.createElement("figcaption");
  const copy = plain("button", "Copy");
  copy.type = "button";
  copy.className = "copy";
  caption.append(plain("span", language || "text"), copy);
  const pre = document.createElement("pre");
  pre.tabIndex = 0;
  pre.append(plain("code", code));
  block.append(caption, pre);
  return block;
}
