// The page of the cache: asks /v1/cache, and shows what it says in English or Chinese. Texts only, no markup from outside.

const TEXTS = {
  en: {
    skip: "Skip to the figures", again: "Ask again", title: "The cache", hits: "Answers by level",
    wrong: "Wrong answers", threshold: "Threshold over questions", refused: "Near questions that were refused", asked: "Asked",
    stored: "Stored", alike: "Alike", rule: "Rule", ledger: "Ledger", posting: "Posting", count: "Count", tokens: "Tokens",
    money: "Money", seconds: "Seconds", loading: "Asking …", key: "This mesh asks for an API key: set it in the settings of the chat.",
    failed: "The figures could not be had.", none: "No cache answers.", exact: "the same request", folded: "the same words",
    semantic: "other words", miss: "none", bypassed: "not looked up", embedding: "encoder", verifying: "verifier", audits: "audits",
    balance: "balance", nothing: "none yet",
    rate: (share, lookups) => `Hit rate ${share} of ${lookups} lookups since the cache started.`, unasked: "Nothing has been looked up yet.",
    bound: (bound, budget) => `At most ${bound} of the questions are answered wrongly, by the comparisons so far; the budget is ${budget}.`,
    unknown: (budget) => `Too few comparisons to say; the budget is ${budget}.`,
    off: (left) => `Answers to other words are off: they cost more than they saved. They are tried again after ${left} questions.`,
    trial: "Answers to other words are on trial, after they had cost more than they saved.",
    now: (value, questions) => `Now ${value}, after ${questions} questions.`, closed: "nothing is served",
  },
  zh: {
    skip: "跳到数据", again: "重新查询", title: "缓存", hits: "各层回答", wrong: "错误回答",
    threshold: "阈值随提问数的变化", refused: "被拒绝的相近问题", asked: "提问", stored: "已存问题", alike: "相似度", rule: "规则",
    ledger: "账本", posting: "科目", count: "次数", tokens: "词元", money: "金额", seconds: "秒", loading: "正在查询……",
    key: "需要 API 密钥：请在聊天页的设置里填写。", failed: "无法取得数据。", none: "没有可用的缓存。", exact: "相同请求", folded: "相同词句",
    semantic: "不同说法", miss: "未命中", bypassed: "未查询", embedding: "编码器", verifying: "校验器", audits: "抽查", balance: "结余",
    nothing: "暂无",
    rate: (share, lookups) => `缓存启动以来 ${lookups} 次查询，命中率 ${share}。`, unasked: "还没有查询。",
    bound: (bound, budget) => `根据目前的比对，最多 ${bound} 的提问得到错误回答；预算为 ${budget}。`,
    unknown: (budget) => `比对太少，尚无法判断；预算为 ${budget}。`,
    off: (left) => `“不同说法”一层已关闭：花费超过节省。再过 ${left} 个提问后重试。`,
    trial: "“不同说法”一层花费曾超过节省，正在试用。",
    now: (value, questions) => `现在为 ${value}，已有 ${questions} 个提问。`, closed: "不提供回答",
  },
};
const $ = (id) => document.getElementById(id);
let language = localStorage.getItem("streamway.language") ?? (navigator.language.startsWith("zh") ? "zh" : "en");
let told = null;

const say = () => TEXTS[language];
const percent = (share, digits = 2) => `${(100 * share).toFixed(digits)} %`;

function cell(text, number = false) {
  const made = document.createElement("td");
  made.textContent = text;
  if (number) made.className = "number";
  return made;
}

function rows(id, lines) {
  $(id).tBodies[0].replaceChildren(...lines.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells);
    return row;
  }));
}

function status(text) {
  $("state").textContent = text;
}

function showLevels(stats) {
  const counts = { exact: stats.hits, folded: stats.folded_hits, semantic: stats.semantic_hits, miss: stats.misses, bypassed: stats.bypassed };
  const lookups = counts.exact + counts.folded + counts.semantic + counts.miss;
  $("rate").textContent = lookups ? say().rate(percent(1 - counts.miss / lookups, 1), lookups) : say().unasked;
  rows("levels", Object.entries(counts).map(([name, count]) => [
    cell(say()[name]), cell(count, true), cell(name === "bypassed" || !lookups ? "" : percent(count / lookups, 1), true),
  ]));
}

function showSemantic(semantic) {
  const text = say(), budget = percent(semantic.budget);
  $("bound").textContent = semantic.wrong_bound === undefined ? text.unknown(budget) : text.bound(percent(semantic.wrong_bound), budget);
  $("switch").hidden = !["off", "trial"].includes(semantic.state);
  $("switch").textContent = semantic.state === "off" ? text.off(semantic.questions_left) : text.trial;
  showCurve(semantic);
  const rules = Object.entries(semantic.refused).sort((one, other) => other[1] - one[1]);
  $("rules").textContent = rules.map(([rule, count]) => `${rule} ${count}`).join(", ") || text.nothing;
  rows("near", semantic.near.toReversed().map(({ question, near, similarity, finding }) => [
    cell(question), cell(near), cell(similarity.toFixed(3), true), cell(`${finding.rule}: ${finding.asked} / ${finding.stored}`),
  ]));
}

function showCurve({ history, threshold, source, asked }) {
  const last = Math.max(asked, 1), x = (question) => (600 * (question - 1)) / last, y = (value) => 155 - 150 * Math.max(0, (value - 0.6) / 0.4);
  const path = [];
  for (const [at, point] of history.entries()) {
    const end = x(history[at + 1]?.question ?? last + 1);
    // Where nothing was served there is a gap.
    if (point.threshold !== undefined) path.push(`M${x(point.question)} ${y(point.threshold)}H${end}`);
  }
  $("curve").firstElementChild.setAttribute("d", path.join(""));
  const now = say().now(source === "closed" ? say().closed : threshold.toFixed(3), asked);
  $("curve-said").textContent = now;
  $("curve").setAttribute("aria-label", `${say().threshold}: ${now}`);
}

function showLedger({ lines, balance }) {
  const line = ({ name, debit, count, tokens, money, seconds }, shown) => {
    const sign = debit ? -1 : 1;
    return [
      cell(say()[name] ?? shown), cell(count ?? "", true), cell(sign * tokens || 0, true), cell((sign * money).toFixed(6), true),
      cell((sign * seconds).toFixed(2), true),
    ];
  };
  rows("ledger", [...lines.map((each) => line(each, each.name)), line({ ...balance, count: "" }, say().balance)]);
  $("ledger").tBodies[0].lastElementChild.className = "balance";
}

function show() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  document.title = `Streamway: ${say().title}`;
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = say()[element.dataset.text];
  $("language").textContent = language === "en" ? "中文" : "English";
  $("language").lang = language === "en" ? "zh" : "en";
  if (!told) return;
  status(told.problem ? say()[told.problem] : "");
  $("shown").hidden = Boolean(told.problem);
  if (told.problem) return;
  showLevels(told.stats);
  $("semantic").hidden = !told.stats.semantic;
  if (told.stats.semantic) showSemantic(told.stats.semantic);
  showLedger(told.stats.savings ?? { lines: [], balance: { tokens: 0, money: 0, seconds: 0 } });
}

async function ask() {
  status(say().loading);
  told = await asked();
  show();
}

async function asked() {
  const key = sessionStorage.getItem("streamway.key"); // the chat keeps it
  try {
    const response = await fetch("v1/cache", { cache: "no-store", headers: key ? { Authorization: `Bearer ${key}` } : {} });
    if (response.status === 401) return { problem: "key" };
    if (!response.ok) return { problem: "failed" };
    const stats = await response.json();
    return stats.available ? { stats } : { problem: "none" };
  } catch {
    return { problem: "failed" };
  }
}

$("again").addEventListener("click", ask);
$("language").addEventListener("click", () => {
  language = language === "en" ? "zh" : "en";
  localStorage.setItem("streamway.language", language);
  show();
});
const theme = localStorage.getItem("streamway.theme");
if (theme) document.documentElement.dataset.theme = theme;
show();
ask();
