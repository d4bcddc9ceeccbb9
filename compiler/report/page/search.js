// Search of ops by kind, values by name, and source lines, best match first.

const MOST = 60;
let hits = [];
let active = -1;

function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const stage = stages[state.stage];
  const found = [];
  for (const node of nodes) {
    if (!visible(node)) continue;
    const names = [node.kind, ...node.outputs.map((v) => v.label)].map((name) => name.toLowerCase());
    const all = [...names, node.source.where, node.source.text || "", ...node.inputs.map((v) => v.label)].join(" ").toLowerCase();
    if (!words.every((word) => all.includes(word))) continue;
    const rank = names.includes(words[0]) ? 0 : names.some((name) => name.startsWith(words[0])) ? 1 : names.some((name) => name.includes(words[0])) ? 2 : 3;
    found.push({ node, rank, order: stage.place.get(node.id) ?? -1 });
  }
  return found.sort((a, b) => a.rank - b.rank || a.order - b.order).map((each) => each.node);
}

function showFound() {
  const list = find("found"), input = find("search");
  const shown = hits.slice(0, MOST);
  fill(list, shown.map((node, index) => el("li", {
    role: "option", id: `hit-${index}`, "aria-selected": String(index === active), onmousedown: (event) => { event.preventDefault(); choose(node); },
  }, el("b", {}, node.kind), " ", el("code", {}, nameOf(node)), el("span", { class: "quiet" }, node.source.where))),
  hits.length > MOST ? el("li", { class: "quiet" }, `and ${countText(hits.length - MOST)} more`) : "",
  input.value.trim() && !hits.length ? el("li", { class: "quiet" }, "no match in this pass") : "");
  list.hidden = !input.value.trim() || document.activeElement !== input;
  input.setAttribute("aria-expanded", String(!list.hidden));
  if (active >= 0) input.setAttribute("aria-activedescendant", `hit-${active}`); else input.removeAttribute("aria-activedescendant");
  if (active >= 0) list.children[active].scrollIntoView({ block: "nearest" });
}

function choose(node) {
  find("search").blur();
  find("found").hidden = true;
  graph.seek = true;
  go({ tab: "graph", op: node.id });
  graph.canvas.focus({ preventScroll: true });
}

function buildSearch() {
  const input = find("search");
  const update = () => { hits = search(input.value); active = hits.length ? 0 : -1; showFound(); };
  input.addEventListener("input", update);
  input.addEventListener("focus", update);
  input.addEventListener("blur", () => { find("found").hidden = true; input.setAttribute("aria-expanded", "false"); });
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    const most = Math.min(hits.length, MOST);
    if (event.key === "ArrowDown" && most) active = (active + 1) % most;
    else if (event.key === "ArrowUp" && most) active = (active + most - 1) % most;
    else if (event.key === "Enter" && active >= 0) { choose(hits[active]); return; }
    else if (event.key === "Escape") { input.value = ""; input.blur(); return; }
    else return;
    event.preventDefault();
    showFound();
  });
}
