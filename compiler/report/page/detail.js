// The selected op: source line, inputs and outputs, and the passes that changed it.

function showDetail() {
  const panel = find("detail");
  if (state.op === null) { fill(panel, welcome()); return; }
  const node = nodes[state.op], stage = stages[state.stage], line = lineOf(stage, node);
  const op = stage.place.get(node.id);
  const facts = [];
  if (op !== undefined) facts.push(["op", `${countText(op + 1)} of ${countText(stage.nodes.length)}`]);
  if (op !== undefined && stage.kernels[op] >= 0) facts.push(["kernel", kernelMates(stage, op)]);
  const freed = freedAfter(stage, op);
  if (freed.length) facts.push(["freed after it", freed.map((text) => el("code", {}, text)).flatMap((e, i) => (i ? [", ", e] : [e]))]);
  fill(panel,
    el("h2", {}, node.kind, el("button", { type: "button", class: "close", "aria-label": "Deselect (Esc)", onclick: () => go({ op: null }) }, "×")),
    node.source.where ? el("p", { class: "source" }, el("span", { class: "where" }, node.source.where), node.source.text ? el("code", {}, node.source.text) : "") : "",
    facts.length ? el("dl", {}, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))) : "",
    values("writes", node.outputs, (v) => node.links.filter((l) => l.start === node && l.value === v && l.stages.has(stage.index)).map((l) => l.stop)),
    values("reads", node.inputs, (v) => node.links.filter((l) => l.stop === node && l.value === v && l.stages.has(stage.index)).map((l) => l.start)),
    touches(node),
    missedOptimisations(node),
    line ? [el("h3", {}, "IR text"), el("pre", {}, line.code.trim())] : node.kind === "feed" ? "" : el("p", { class: "quiet" }, "Does not exist in this pass."),
    stepOfNode.has(node.id) && data.code.source ? el("p", {}, el("button", { type: "button", class: "link", onclick: () => go({ tab: "code", kernel: stepOfNode.get(node.id).index }) }, "Generated code →")) : "");
  speak(`${node.kind}, ${node.outputs.map((v) => `${v.label} ${v.type}`).join(", ")}`);
}

function missedOptimisations(node) {
  const found = missedOf.get(node.id) || [];
  if (!found.length) return "";
  return [el("h3", {}, "missed optimisations"), el("ul", { class: "history" }, found.map(([stage, reason]) => el("li", {},
    el("button", { type: "button", class: "link", onclick: () => go({ stage: stage.index }) }, stage.name), el("span", { class: "warn" }, ` ${reason}`))))];
}

function welcome() {
  const row = (keys, text) => el("div", {}, el("dt", {}, keys.map((k) => el("kbd", {}, k))), el("dd", {}, text));
  return [el("h2", {}, "Select an op"), el("p", { class: "quiet" }, "Click one, or search. The fill colour is its kind of work, the bar at its left its kernel."),
    el("dl", { class: "keys" }, row(["←", "→"], "previous, next pass"), row(["↑", "↓"], "previous, next op"), row(["/"], "search"),
      row(["+", "−", "0"], "zoom in, out, show all"), row(["Esc"], "deselect"))];
}

function values(title, list, others) {
  if (!list.length) return "";
  return [el("h3", {}, title), el("ul", { class: "values" }, list.map((v) => {
    const ends = [...new Set(others(v))];
    const shown = ends.slice(0, 6).map((node) => el("button", { type: "button", class: "link", onclick: () => go({ op: node.id }) }, node.kind));
    return el("li", {}, el("code", {}, v.label), el("span", { class: "quiet" }, `${v.type}${v.bytes != null ? ` · ${bytesText(v.bytes)}` : ""}${v.role === "param" ? " · state" : ""}`),
      ends.length ? el("span", { class: "ends" }, title === "writes" ? "→ " : "← ", shown, ends.length > 6 ? ` and ${ends.length - 6} more` : "") : "");
  }))];
}

function kernelMates(stage, op) {
  const kernel = stage.kernels[op];
  const mates = stage.nodes.filter((node, other) => stage.kernels[other] === kernel && node >= 0);
  return mates.map((id, i) => [i ? " + " : "", id === state.op ? el("b", {}, nodes[id].kind) : el("button", { type: "button", class: "link", onclick: () => go({ op: id }) }, nodes[id].kind)]).flat();
}

// What is deleted between this op and the next.
function freedAfter(stage, op) {
  const freed = [];
  for (let next = op + 1; op !== undefined && next < stage.nodes.length && stage.nodes[next] < 0; next++) {
    freed.push(lines[stage.lines[stage.starts[next]]].code.replace(/^.*delete_var\((?:\w+=)?\[?|\]?\).*$/g, ""));
  }
  return freed;
}

function touches(node) {
  const events = stages.filter((stage) => stage.before && marksOf(stage).has(node.id));
  if (!events.length) return "";
  return [el("h3", {}, "passes that changed it"), el("ol", { class: "history" }, events.map((stage) => {
    const mark = marksOf(stage).get(node.id);
    return el("li", {}, el("button", { type: "button", class: "link", onclick: () => go({ stage: stage.index }) }, stage.name), " ", el("span", { class: `mark ${mark}` }, WORDS[mark].replace(" by this pass", "")));
  }))];
}
