// The conversations that this browser keeps: each under a key of its own, and an index of them. Bounded: the oldest give way.
//
//   streamway.conversations        [{ id, title, updated, size }]   newest first
//   streamway.conversation.<id>    one, as tree.js has it

import { revived } from "./tree.js";

const INDEX = "streamway.conversations";
const PREFIX = "streamway.conversation.";

export class Library {
  #storage;
  #most;
  #mostChars;

  // `storage` is as localStorage. At most so many conversations, and so many characters of all of them.
  constructor(storage, { most = 100, mostChars = 3_000_000 } = {}) {
    this.#storage = storage;
    this.#most = most;
    this.#mostChars = mostChars;
  }

  list() {
    try {
      const rows = JSON.parse(this.#storage.getItem(INDEX));
      return rows.filter(({ id, title, updated, size }) => typeof id === "string" && typeof title === "string" && updated >= 0 && size >= 0);
    } catch {
      return [];
    }
  }

  load(id) {
    return revived(this.#storage.getItem(PREFIX + id));
  }

  // False: it cannot be kept, since it is too large alone or the browser gives no room. What was kept of it is kept.
  save(conversation) {
    const text = JSON.stringify(conversation);
    if (text.length > this.#mostChars) return false;
    const { id, title, updated } = conversation;
    const rows = [{ id, title, updated, size: text.length }, ...this.list().filter((row) => row.id !== id)];
    rows.sort((one, other) => other.updated - one.updated);
    let sum = rows.reduce((all, { size }) => all + size, 0);
    const oldest = () => rows.findLastIndex((row) => row.id !== id);
    while (rows.length > this.#most || sum > this.#mostChars) sum -= this.#forget(rows, oldest());
    for (;;) {
      try {
        this.#storage.setItem(PREFIX + id, text);
        this.#storage.setItem(INDEX, JSON.stringify(rows));
        return true;
      } catch {
        // Over the browser's own bound.
        if (oldest() < 0) return false;
        this.#forget(rows, oldest());
      }
    }
  }

  remove(id) {
    this.#storage.removeItem(PREFIX + id);
    this.#storage.setItem(INDEX, JSON.stringify(this.list().filter((row) => row.id !== id)));
  }

  clear() {
    for (const { id } of this.list()) this.#storage.removeItem(PREFIX + id);
    this.#storage.removeItem(INDEX);
  }

  #forget(rows, at) {
    const [{ id, size }] = rows.splice(at, 1);
    this.#storage.removeItem(PREFIX + id);
    return size;
  }
}
