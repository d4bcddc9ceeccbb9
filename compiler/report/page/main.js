// Page setup: header, tabs, keys, and the URL fragment.

function buildPage() {
  find("title").textContent = data.title;
  fill(find("facts"), data.facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  fill(find("tabs"), TABS.map(([name, text]) => el("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, onclick: () => go({ tab: name }),
  }, text)));
  buildSearch();
  fill(find("keys"), el("h2", {}, "Keys"), el("dl", { class: "keys" }, [
    ["← →", "previous, next pass"], ["↑ ↓", "previous, next op; in Memory: step"], ["/", "search ops, values and lines"],
    ["1 … 5", "views"], ["+ − 0", "in the graph: zoom in, out, show all"], ["Home", "in the graph: back to the start"], ["P", "in Memory: peak"],
    ["Esc", "deselect"], ["?", "this help"]].map(([key, text]) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)))),
  el("form", { method: "dialog" }, el("button", {}, "Close")));
  find("help").addEventListener("click", () => find("keys").showModal());
  addEventListener("hashchange", () => { readAddress(); show(); });
  document.addEventListener("keydown", keyPressed);
  dark.addEventListener("change", () => { colours.clear(); show(); });
}

function keyPressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, dialog *")) return;
  if (event.target.matches("[role=tab]") && event.key.startsWith("Arrow")) event.target.blur();
  const action = ACTIONS[event.key] || (/^[1-5]$/.test(event.key) ? () => go({ tab: TABS[event.key - 1][0] }) : null);
  if (!action) return;
  event.preventDefault();
  action();
}

const ACTIONS = {
  ArrowLeft: () => stepPass(-1),
  ArrowRight: () => stepPass(1),
  ArrowUp: () => stepOp(-1),
  ArrowDown: () => stepOp(1),
  "/": () => { find("search").focus(); find("search").select(); },
  "+": () => inGraph(() => zoom(1.35)),
  "=": () => inGraph(() => zoom(1.35)),
  "-": () => inGraph(() => zoom(1 / 1.35)),
  0: () => inGraph(showAll),
  Home: () => inGraph(home),
  p: () => { if (state.tab === "memory") go({ step: arena.peak }); },
  Escape: () => go({ op: null }),
  "?": () => find("keys").showModal(),
};

const inGraph = (action) => { if (state.tab === "graph") action(); };

function stepPass(by) {
  const stage = Math.max(0, Math.min(stages.length - 1, state.stage + by));
  go({ stage });
  speak(`${stages[stage].name}: ${stages[stage].changes || "nothing changed"}`);
}

// Go to the next op in the graph, the next step in Memory, the next kernel in Code; else scroll.
function stepOp(by) {
  if (state.tab === "memory" && arena.live.length) {
    go({ step: Math.max(0, Math.min(arena.live.length - 1, (state.step === null ? arena.peak : state.step) + by)) });
    return;
  }
  if (state.tab === "code") { go({ kernel: Math.max(0, Math.min(data.code.kernels.length - 1, (state.kernel || 0) + by)) }); return; }
  if (state.tab !== "graph") { find(`panel-${state.tab}`).scrollBy(0, 60 * by); return; }
  const order = stages[state.stage].nodes.filter((node) => node >= 0);
  const at = order.indexOf(state.op);
  go({ op: order[at < 0 ? (by > 0 ? 0 : order.length - 1) : Math.max(0, Math.min(order.length - 1, at + by))] });
}

buildPage();
readAddress();
show();
