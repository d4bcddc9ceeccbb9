// What the pass did: in its own words, what it declined and why, and the lines, side by side.

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
    stage.declined.map(declinedGroup), stage.rows.length || !stage.before ? table(stage) : "");
  panel.scrollTop = 0;
};

function declinedGroup([reason, ops]) {
  const head = ops.length > 1 ? `Declined ${countText(ops.length)} ops: ` : "Declined: ";
  return el("details", { class: "declined", open: ops.length <= 2 }, el("summary", {}, head, el("b", {}, reason)),
    el("ul", {}, ops.map(([text, source, node]) => el("li", {},
      node >= 0 ? el("button", { type: "button", class: "link", onclick: () => go({ tab: "graph", op: node }) }, el("code", {}, text)) : el("code", {}, text),
      " ", el("span", { class: "quiet" }, sources[source].where)))));
}

// Every row of both sides: those that changed as given, those between them as they follow.
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

// Runs of lines that went, beside those that came in their place.
function paired(rows) {
  const found = [];
  for (let i = 0; i < rows.length;) {
    let stop = i;
    while (stop < rows.length && (rows[stop][0] === "gone" || rows[stop][0] === "come")) stop++;
    const went = rows.slice(i, stop).filter((row) => row[0] === "gone");
    const came = rows.slice(i, stop).filter((row) => row[0] === "come");
    for (let k = 0; k < Math.max(went.length, came.length); k++) {
      found.push([went[k] && came[k] ? "replaced" : went[k] ? "gone" : "come", went[k] ? went[k][1] : -1, came[k] ? came[k][2] : -1]);
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

const SIDES = { same: ["", ""], edited: ["gone", "come"], replaced: ["gone", "come"], gone: ["gone", ""], come: ["", "come"], left: ["moved", ""], arrived: ["", "moved"] };

function diffRow(stage, [change, a, b]) {
  const left = a >= 0 ? lines[(stage.before || stage).lines[a]] : null;
  const right = b >= 0 ? lines[stage.lines[b]] : null;
  const [old, fresh] = left && right && change !== "same" ? marked(left.code, right.code) : [left && [left.code], right && [right.code]];
  const cell = (line, parts, side) => el("td", { class: SIDES[change][side] }, line ? [el("code", {}, parts), sourceOf(line.source)] : "");
  return el("tr", {}, el("td", { class: SIDES[change][0] }, a >= 0 ? String(a + 1) : ""), cell(left, old, 0),
    el("td", { class: SIDES[change][1] }, b >= 0 ? String(b + 1) : ""), cell(right, fresh, 1));
}

// The user's line, as a quiet line below the op.
function sourceOf(source) {
  if (!source.where) return "";
  return el("span", { class: "source" }, el("span", { class: "where" }, source.where), source.text ? ["  ", el("code", {}, source.text)] : "");
}

// Two lines with, in bold, the words that only one of them has; plain where they are no kin.
function marked(left, right) {
  const [a, b] = [left, right].map((text) => text.match(/\w+|\W/g) || []);
  const kept = common(a, b);
  if (2 * kept.length < Math.min(a.length, b.length)) return [[left], [right]];
  return [bold(a, new Set(kept.map(([i]) => i))), bold(b, new Set(kept.map(([, j]) => j)))];
}

// The longest common subsequence of two lists of words, as pairs of places.
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
