// One conversation as a tree: an earlier question that is asked otherwise, or an answer that is made again, is a branch. No I/O.
//
//   nodes   { id, parent, role, text } in the order they were made; parent 0 is the beginning. An answer has also { state, facts,
//           error, saved }: state is live, done, stopped or failed; `saved` is what streamway.js needs to go on with a live one.
//   chosen  parent → which of its branches is shown; without an entry the newest

export function fresh(id, session, now) {
  return { id, session, title: "", named: false, updated: now, last: 0, nodes: [], chosen: {} };
}

export function add(conversation, parent, node) {
  conversation.last += 1;
  const added = { id: conversation.last, parent, ...node };
  conversation.nodes.push(added);
  conversation.chosen[parent] = added.id;
  if (node.role === "user" && !conversation.title) conversation.title = titled(node.text);
  return added;
}

export function titled(text) {
  const line = text.trim().replace(/\s+/g, " ");
  const letters = Array.from(line);
  return letters.length > 60 ? `${letters.slice(0, 59).join("").trimEnd()}…` : line;
}

// All branches at the place of a node, itself among them.
export function branches(conversation, node) {
  return conversation.nodes.filter(({ parent }) => parent === node.parent);
}

export function choose(conversation, node) {
  conversation.chosen[node.parent] = node.id;
}

// What is shown: from the first question along the chosen branches.
export function path(conversation) {
  const children = new Map();
  for (const node of conversation.nodes) {
    const found = children.get(node.parent);
    if (found) found.push(node);
    else children.set(node.parent, [node]);
  }
  const shown = [];
  for (let at = children.get(0); at; at = children.get(shown.at(-1).id)) {
    const parent = at[0].parent;
    shown.push(at.find(({ id }) => id === conversation.chosen[parent]) ?? at.at(-1));
  }
  return shown;
}

// Takes a node out with all that follows it.
export function remove(conversation, node) {
  const gone = new Set([node.id]);
  // A child is always behind its parent.
  for (const { id, parent } of conversation.nodes) if (gone.has(parent)) gone.add(id);
  conversation.nodes = conversation.nodes.filter(({ id }) => !gone.has(id));
  for (const id of [...gone, node.parent]) if (gone.has(id) || gone.has(conversation.chosen[id])) delete conversation.chosen[id];
}

// What a model is asked with: all that is shown in front of `node`. What failed is left out.
export function messages(conversation, node, system = "") {
  const until = path(conversation).findIndex(({ id }) => id === node.id);
  const before = path(conversation).slice(0, until).filter(({ text, state }) => text && state !== "failed");
  return [...(system ? [{ role: "system", content: system }] : []), ...before.map(({ role, text }) => ({ role, content: text }))];
}

// A conversation as it was kept, or null for anything else: what lies in a browser may be of another version, or damaged.
export function revived(text) {
  let kept;
  try {
    kept = JSON.parse(text);
  } catch {
    return null;
  }
  const whole = kept && typeof kept.id === "string" && typeof kept.session === "string" && Array.isArray(kept.nodes);
  if (!whole || typeof kept.chosen !== "object" || kept.chosen === null) return null;
  const known = new Set([0]);
  for (const node of kept.nodes) {
    if (!node || typeof node.text !== "string" || !["user", "assistant"].includes(node.role)) return null;
    if (!Number.isSafeInteger(node.id) || known.has(node.id) || !known.has(node.parent)) return null;
    known.add(node.id);
    if (node.role === "assistant" && (typeof node.facts !== "object" || node.facts === null)) node.facts = {};
    if (node.state === "live" && !node.saved) node.state = "stopped";
    if (node.state === "failed") node.error = { reason: "", message: "", ...node.error };
  }
  kept.last = Math.max(0, ...known);
  kept.title = typeof kept.title === "string" ? kept.title : "";
  kept.updated = Number(kept.updated) || 0;
  return kept;
}
