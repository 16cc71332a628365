// The console's texts are whole in both languages, and what a page names is among them.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import { TEXTS } from "../../services/edge/static/texts.js";

const FOLDER = new URL("../../services/edge/static/", import.meta.url);
const files = (ending) => readdirSync(FOLDER).filter((name) => name.endsWith(ending)).map((name) => [name, readFileSync(new URL(name, FOLDER), "utf8")]);
const places = (text) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name).sort();

test("every text is there in both languages, with the same places to fill in", () => {
  for (const [name, row] of Object.entries(TEXTS)) {
    assert.equal(row.length, 2, name);
    assert.ok(row.every((text) => text.trim()), name);
    assert.deepEqual(places(row[1]), places(row[0]), name);
  }
});

test("what pages and modules name is in the table, and nothing else is", () => {
  const named = new Set();
  for (const [file, text] of files(".html")) {
    for (const [, name] of text.matchAll(/data-(?:t|t-title|t-label|t-placeholder|name)="([^"]+)"/g)) {
      assert.ok(name in TEXTS, `${file}: ${name}`);
      named.add(name);
    }
  }
  const code = files(".js").filter(([file]) => file !== "texts.js").map(([, text]) => text).join("\n");
  for (const [, name] of code.matchAll(/\bsay\("([a-z_.]+\.[a-z_.]+)"/g)) assert.ok(name in TEXTS || `cache.${name}` in TEXTS, name);
  // Names that are put together, as `fact.${name}` is, count by their beginnings.
  const built = [...code.matchAll(/`([a-z.]+\.)\$\{/g)].map(([, start]) => start);
  for (const name of Object.keys(TEXTS)) {
    const known = named.has(name) || code.includes(`"${name}"`) || built.some((start) => name.startsWith(start));
    assert.ok(known, `nothing says ${name}`);
  }
});
