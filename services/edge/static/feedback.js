// What a reader thinks of an answer that came from the cache: two buttons under it, which tell the mesh.

const TEXTS = {
  en: {
    group: "Is this earlier answer right?", good: "This earlier answer is right", bad: "This earlier answer is wrong",
    said: { good: "Thank you, noted.", bad: "Thank you. It will not be given to this question again." },
    gone: "The cache no longer has this answer.", often: "Too many opinions for now. Try again later.", failed: "That could not be sent. Try again.",
  },
  zh: {
    group: "这个缓存的回答对吗？", good: "这个缓存的回答是对的", bad: "这个缓存的回答是错的",
    said: { good: "谢谢，已记录。", bad: "谢谢，这个提问不会再得到此回答。" },
    gone: "缓存中已没有这个回答。", often: "反馈太多，请稍后再试。", failed: "未能发送，请重试。",
  },
};
const THUMB = "M7 11v9H4v-9zm0 0 4-8a2 2 0 0 1 2 2v4h5.4a2 2 0 0 1 2 2.3l-1.1 7a2 2 0 0 1-2 1.7H7";

function button(kind, text) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = `thumb ${kind}`;
  made.title = text;
  made.setAttribute("aria-label", text);
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("viewBox", "0 0 24 24");
  picture.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", THUMB);
  picture.append(path);
  made.append(picture);
  return made;
}

// Gives `{ element, update }` for an answer: `entry()` is the one in the cache that it came from, "" while there is none;
// `said()` and `note(opinion)` read and keep what was said of it, "good" or "bad"; `key()` is the API key.
export function opinion({ entry, said, note, key, base = document.baseURI }) {
  const texts = TEXTS[document.documentElement.lang.startsWith("zh") ? "zh" : "en"];
  const element = document.createElement("div");
  element.className = "opinion";
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", texts.group);
  const status = document.createElement("span");
  status.setAttribute("role", "status");
  const buttons = { good: button("good", texts.good), bad: button("bad", texts.bad) };
  let sending = false;

  function update() {
    element.hidden = !entry();
    for (const [kind, each] of Object.entries(buttons)) {
      each.setAttribute("aria-pressed", String(said() === kind));
      // Not `disabled`, which would take the focus away from who has just pressed it.
      each.setAttribute("aria-disabled", String(Boolean(said())));
    }
  }
  async function say(kind) {
    if (said() || sending) return;
    sending = true;
    const headers = { "content-type": "application/json" };
    if (key()) headers.authorization = `Bearer ${key()}`;
    try {
      const url = new URL(`v1/cache/entries/${encodeURIComponent(entry())}/feedback`, base);
      const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify({ good: kind === "good" }) });
      if (answer.ok) note(kind);
      status.textContent = answer.ok ? texts.said[kind]
        : answer.status === 404 ? texts.gone : answer.status === 429 ? texts.often : texts.failed;
    } catch {
      status.textContent = texts.failed;
    }
    sending = false;
    update();
  }
  for (const [kind, each] of Object.entries(buttons)) each.addEventListener("click", () => say(kind));
  element.append(buttons.good, buttons.bad, status);
  update();
  return { element, update };
}
