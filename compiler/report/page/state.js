// The selected view, pass, op, step and kernel; stored in the URL fragment, so that it can be shared.

const TABS = [["overview", "Overview"], ["changes", "Changes"], ["graph", "Graph"], ["memory", "Memory"], ["code", "Code"]];
const state = { tab: "overview", stage: stages.length - 1, op: null, step: null, kernel: null };
const views = {};

// Change the selection: `go({tab: "graph", op: node.id})`.
function go(change) {
  Object.assign(state, change);
  const address = addressOf(state);
  if (address !== location.hash) history.replaceState(null, "", address);
  show();
}

function addressOf({ tab, stage, op, step, kernel }) {
  const more = [];
  if (op !== null) more.push(`op=${encodeURIComponent(nameOf(nodes[op]))}`);
  if (tab === "memory" && step !== null) more.push(`step=${step}`);
  if (tab === "code" && kernel !== null) more.push(`kernel=${kernel}`);
  return `#${tab}/${encodeURIComponent(stages[stage].name)}${more.length ? `/${more.join("&")}` : ""}`;
}

// An op is named after its largest output.
const nameOf = (node) => (node.main ? node.main.label : `${node.kind} ${node.id}`);

function readAddress() {
  const [tab, pass, more] = location.hash.slice(1).split("/").map((part, i) => (i < 2 ? decode(part) : part));
  if (TABS.some(([name]) => name === tab)) state.tab = tab;
  const stage = stages.findIndex((each) => each.name === pass);
  if (stage >= 0) state.stage = stage;
  const given = new Map((more || "").split("&").map((pair) => pair.split("=")));
  const wanted = given.has("op") ? decode(given.get("op")) : null;
  const found = wanted === null ? null : nodes.filter((node) => nameOf(node) === wanted || node.outputs.some((v) => v.label === wanted));
  if (found) state.op = found.length ? (found.find((n) => feedsOf(stages[state.stage], n)) || found[0]).id : null;
  if (given.has("step")) state.step = clamp(given.get("step"), steps.length);
  if (given.has("kernel")) state.kernel = clamp(given.get("kernel"), data.code.kernels.length);
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function clamp(text, count) {
  const number = Number.parseInt(text, 10);
  return Number.isNaN(number) || !count ? null : Math.max(0, Math.min(count - 1, number));
}

function show() {
  for (const [name] of TABS) {
    find(`panel-${name}`).hidden = name !== state.tab;
    const tab = find(`tab-${name}`);
    tab.setAttribute("aria-selected", String(name === state.tab));
    tab.tabIndex = name === state.tab ? 0 : -1;
  }
  showRail();
  tip.hide();
  views[state.tab]();
  document.title = `${stages[state.stage].name} · ${data.title}`;
}

function speak(text) { find("spoken").textContent = text; }
