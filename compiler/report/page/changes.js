// Changes of a pass: its description, its missed optimisations, and a side-by-side diff.

const CONTEXT = 2;

views.changes = function showChanges() {
  const stage = stages[state.stage];
  const panel = find("panel-changes");
  if (panel.dataset.stage === stage.name) return;
  panel.dataset.stage = stage.name;
  const [equation, ...rest] = stage.about.split("\n");
  fill(panel,
    el("h2", {}, stage.before ? stage.name : "as written", el("small", {}, stage.before ? [timeText(stage.ms), stage.changes || "no line changed"].join(" · ") : "")),
    el("p", { class: "equation" }, prose(equation)), rest.map((text) => el("p", { class: "lead" }, prose(text))),
    stage.missed.map(missedGroup), stage.rows.length || !stage.before ? table(stage) : "");
  panel.scrollTop = 0;
};

function missedGroup([reason, ops]) {
  const head = ops.length > 1 ? `Not applied to ${countText(ops.length)} ops: ` : "Not applied: ";
  return el("details", { class: "missed", open: ops.length <= 2 }, el("summary", {}, head, el("b", {}, reason)),
    el("ul", {}, ops.map(([text, source, node]) => el("li", {},
      node >= 0 ? el("button", { type: "button", class: "link", onclick: () => go({ tab: "graph", op: node }) }, el("code", {}, text)) : el("code", {}, text),
      " ", el("span", { class: "quiet" }, sources[source].where)))));
}

// All rows of the diff: the changed ones, and the unchanged ones between them.
function* rowsOf(stage) {
  const before = stage.before || stage;
  let [a, b] = [0, 0];
  const same = function* (stop, side) {
    while ((side === 0 ? a : b) < stop) yield ["same", a++, b++];
  };
  for (const [change, left, right] of stage.rows) {
    if (left >= 0) yield* same(left, 0); else yield* same(right, 1);
    yield [CHANGES[change], left >= 0 ? a++ : -1, right >= 0 ? b++ : -1];
  }
  yield* same(before.lines.length, 0);
}

// Pairs of removed and added lines of the same run, shown as replaced.
function paired(rows) {
  const found = [];
  for (let i = 0; i < rows.length;) {
    let stop = i;
    while (stop < rows.length && (rows[stop][0] === "removed" || rows[stop][0] === "added")) stop++;
    const removed = rows.slice(i, stop).filter((row) => row[0] === "removed");
    const added = rows.slice(i, stop).filter((row) => row[0] === "added");
    for (let k = 0; k < Math.max(removed.length, added.length); k++) {
      found.push([removed[k] && added[k] ? "replaced" : removed[k] ? "removed" : "added", removed[k] ? removed[k][1] : -1, added[k] ? added[k][2] : -1]);
    }
    if (stop === i) found.push(rows[stop++]);
    i = stop;
  }
  return found;
}

function table(stage) {
  const rows = paired([...rowsOf(stage)]);
  const near = new Uint8Array(rows.length);
  rows.forEach(([change], i) => {
    if (change === "same") return;
    for (let k = Math.max(0, i - CONTEXT); k <= Math.min(rows.length - 1, i + CONTEXT); k++) near[k] = 1;
  });
  const body = el("tbody");
  for (let i = 0; i < rows.length;) {
    if (near[i] || !stage.before) { body.append(diffRow(stage, rows[i++])); continue; }
    let stop = i;
    while (stop < rows.length && !near[stop]) stop++;
    body.append(fold(stage, rows.slice(i, stop)));
    i = stop;
  }
  return el("div", { class: "scroll wide" }, el("table", { class: "diff" },
    el("caption", { class: "unseen" }, `Lines before and after ${stage.name}`),
    el("colgroup", {}, el("col", { class: "at" }), el("col"), el("col", { class: "at" }), el("col")), body));
}

function fold(stage, rows) {
  const text = rows.length === 1 ? "1 line unchanged" : `${countText(rows.length)} lines unchanged`;
  const row = el("tr", { class: "fold" }, el("td", { colspan: 4 }, el("button", {
    type: "button", onclick: () => row.replaceWith(...rows.map((each) => diffRow(stage, each))),
  }, `⋯ ${text}`)));
  return row;
}

const SIDES = { same: ["", ""], edited: ["removed", "added"], replaced: ["removed", "added"], removed: ["removed", ""], added: ["", "added"], moved_from: ["moved", ""], moved_to: ["", "moved"] };

function diffRow(stage, [change, a, b]) {
  const left = a >= 0 ? lines[(stage.before || stage).lines[a]] : null;
  const right = b >= 0 ? lines[stage.lines[b]] : null;
  const [old, fresh] = left && right && change !== "same" ? marked(left.code, right.code) : [left && [left.code], right && [right.code]];
  const cell = (line, parts, side) => el("td", { class: SIDES[change][side] }, line ? [el("code", {}, parts), sourceOf(line.source)] : "");
  return el("tr", {}, el("td", { class: SIDES[change][0] }, a >= 0 ? String(a + 1) : ""), cell(left, old, 0),
    el("td", { class: SIDES[change][1] }, b >= 0 ? String(b + 1) : ""), cell(right, fresh, 1));
}

// The user's source line, below the op.
function sourceOf(source) {
  if (!source.where) return "";
  return el("span", { class: "source" }, el("span", { class: "where" }, source.where), source.text ? ["  ", el("code", {}, source.text)] : "");
}

// Two lines with the words that differ in bold; plain if they have too little in common.
function marked(left, right) {
  const [a, b] = [left, right].map((text) => text.match(/\w+|\W/g) || []);
  const kept = common(a, b);
  if (2 * kept.length < Math.min(a.length, b.length)) return [[left], [right]];
  return [bold(a, new Set(kept.map(([i]) => i))), bold(b, new Set(kept.map(([, j]) => j)))];
}

// The longest common subsequence of two lists of words, as pairs of indices.
function common(a, b) {
  const width = b.length + 1, table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  const pairs = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) pairs.push([i++, j++]);
    else if (table[(i + 1) * width + j] >= table[i * width + j + 1]) i++;
    else j++;
  }
  return pairs;
}

function bold(words, kept) {
  const parts = [];
  words.forEach((word, i) => {
    const open = parts[parts.length - 1];
    if (open && open.kept === kept.has(i)) open.text += word;
    else parts.push({ kept: kept.has(i), text: word });
  });
  return parts.map((part) => (part.kept ? part.text : el("b", {}, part.text)));
}
