// The graph on a canvas: pan, zoom, search; nodes have the same positions in every pass.

const NODE = { width: 150, height: 34, across: 178, down: 54 };
const camera = { x: 0, y: 0, scale: 1, placed: false };
const graph = { canvas: null, map: null, hover: null, paths: null, stage: null, shown: null, seek: false };
const LANES = ["forward ↓", "backward ↑", "update →"];

const centre = (node) => ({ x: node.x * NODE.across, y: node.y * NODE.down });
const onScreen = (node) => {
  const { x, y } = centre(node);
  return { x: (x - camera.x) * camera.scale, y: (y - camera.y) * camera.scale };
};

views.graph = function showGraph() {
  if (!graph.canvas) buildGraph();
  showDetail();
  if (!camera.placed) { camera.placed = true; home(); }
  if (state.op !== null && (graph.shown !== state.op || graph.seek)) centreOn(nodes[state.op]);
  graph.shown = state.op;
  drawGraph();
};

function buildGraph() {
  graph.canvas = el("canvas", {
    class: "graph", tabindex: 0, role: "application",
    "aria-label": "The graph. Up and down select ops, left and right select passes, plus and minus zoom, slash searches.",
  });
  graph.map = el("canvas", { class: "map", "aria-hidden": "true" });
  const button = (text, label, action) => el("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
  const tools = el("div", { class: "zoom" }, button("+", "Zoom in (+)", () => zoom(1.35)), button("−", "Zoom out (-)", () => zoom(1 / 1.35)),
    button("⤢", "Show all (0)", showAll), button("↥", "Back to the start (Home)", home));
  fill(find("panel-graph"), el("div", { class: "stagebox" }, graph.canvas, graph.map, tools,
    el("div", { class: "captions" }, el("p", { class: "whatnow", id: "whatnow" }), legend())), el("div", { class: "detail", id: "detail", role: "region", "aria-label": "The selected op" }));
  listen();
  new ResizeObserver(() => drawGraph()).observe(graph.canvas);
}

const KINDS = [["product", "product"], ["norm", "norm"], ["activation", "activation"], ["pool", "reduction"], ["loss", "loss"],
  ["shape", "shape"], ["update", "update"], ["feed", "source"], ["other", "other"]];

function legend() {
  const seen = new Set(nodes.map(familyOf));
  return el("ul", { class: "legend", "aria-label": "Colours" }, KINDS.filter(([kind]) => seen.has(kind)).map(([kind, text]) =>
    el("li", {}, el("i", { style: { background: `var(--${kind})` } }), text)));
}

// ---- the camera ----

function extent() {
  const xs = nodes.map((node) => node.x), ys = nodes.map((node) => node.y);
  const [left, right] = [Math.min(...xs), Math.max(...xs)], [top, bottom] = [Math.min(...ys), Math.max(...ys)];
  return { x: (left - 0.6) * NODE.across, y: (top - 1.5) * NODE.down, width: (right - left + 1.2) * NODE.across, height: (bottom - top + 2.4) * NODE.down };
}

function box() { return graph.canvas.getBoundingClientRect(); }

function showAll() { place(Math.min(box().width / extent().width, box().height / extent().height, 1), "all"); }

function home() { place(Math.max(0.35, Math.min(box().width / extent().width, 1)), "start"); }

function place(scale, what) {
  const all = extent(), seen = box();
  camera.scale = scale;
  const wide = all.width * scale > seen.width * 1.02;
  const first = nodes.reduce((best, node) => (node.y < best.y ? node : best), nodes[0]);
  camera.x = wide ? Math.max(all.x, first.x * NODE.across - seen.width / 3 / scale) : all.x + all.width / 2 - seen.width / 2 / scale;
  camera.y = what === "all" ? all.y + all.height / 2 - seen.height / 2 / scale : all.y;
  drawGraph();
}

function zoom(factor, at) {
  const seen = box();
  const point = at || { x: seen.width / 2, y: seen.height / 2 };
  const scale = Math.max(0.02, Math.min(4, camera.scale * factor));
  camera.x += point.x / camera.scale - point.x / scale;
  camera.y += point.y / camera.scale - point.y / scale;
  camera.scale = scale;
  drawGraph();
}

// Centre a node, unless it is visible already and was not searched for.
function centreOn(node) {
  const seen = box(), at = onScreen(node);
  const clear = at.x > 90 && at.x < seen.width - 150 && at.y > 60 && at.y < seen.height - 60;
  if (clear && camera.scale > 0.45 && !graph.seek) return;
  graph.seek = false;
  const all = extent(), fitting = Math.max(0.5, Math.min(1, seen.width / all.width));
  camera.scale = Math.max(camera.scale, Math.min(0.8, fitting));
  const { x, y } = centre(node);
  const wide = all.width * camera.scale > seen.width * 1.02;
  camera.x = (wide ? x : all.x + all.width / 2) - seen.width / 2 / camera.scale;
  camera.y = y - seen.height / 2 / camera.scale;
}

// ---- pointer input ----

function listen() {
  const { canvas } = graph;
  const fingers = new Map();
  let moved = 0;
  const at = (event) => ({ x: event.clientX - box().left, y: event.clientY - box().top });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, at(event));
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId), now = at(event);
    if (!before) { hover(event, pick(now)); return; }
    if (fingers.size === 2) {
      const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
      zoom(Math.hypot(now.x - other.x, now.y - other.y) / (Math.hypot(before.x - other.x, before.y - other.y) || 1), other);
    } else {
      camera.x -= (now.x - before.x) / camera.scale;
      camera.y -= (now.y - before.y) / camera.scale;
    }
    moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    fingers.set(event.pointerId, now);
    tip.hide();
    drawGraph();
  });
  const lift = (event) => {
    if (fingers.delete(event.pointerId) && event.type === "pointerup" && moved < 5) {
      const node = pick(at(event));
      graph.shown = node && node.id;
      go({ op: node ? node.id : null });
    }
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => hover(null, null));
  canvas.addEventListener("dblclick", (event) => zoom(1.8, at(event)));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) { zoom(Math.exp(-event.deltaY * 0.01), at(event)); return; }
    camera.x += (event.shiftKey ? event.deltaY : event.deltaX) / camera.scale;
    camera.y += (event.shiftKey ? 0 : event.deltaY) / camera.scale;
    tip.hide();
    drawGraph();
  }, { passive: false });
  const jump = (event) => {
    if (!event.buttons) return;
    const frame = mapFrame(), corner = graph.map.getBoundingClientRect();
    camera.x = (event.clientX - corner.left - frame.left) / frame.scale + frame.all.x - box().width / 2 / camera.scale;
    camera.y = (event.clientY - corner.top - frame.top) / frame.scale + frame.all.y - box().height / 2 / camera.scale;
    drawGraph();
  };
  graph.map.addEventListener("pointerdown", (event) => { graph.map.setPointerCapture(event.pointerId); jump(event); });
  graph.map.addEventListener("pointermove", jump);
}

// The node at a screen position that exists in this pass, or that it removed.
function pick(point) {
  const x = point.x / camera.scale + camera.x, y = point.y / camera.scale + camera.y;
  const spare = Math.max(0, 6 / camera.scale - 8);
  return nodes.find((node) => visible(node) && Math.abs(x - node.x * NODE.across) <= NODE.width / 2 + spare
    && Math.abs(y - node.y * NODE.down) <= NODE.height / 2 + spare) || null;
}

function visible(node) {
  const stage = stages[state.stage];
  return feedsOf(stage, node) || marksOf(stage).get(node.id) === "removed";
}

function hover(event, node) {
  if (graph.hover !== node) { graph.hover = node; drawGraph(); }
  graph.canvas.style.cursor = node ? "pointer" : "grab";
  if (!node) { tip.hide(); return; }
  const outputs = node.outputs.slice(0, 4).map((v) => el("div", {}, el("code", {}, v.label), el("span", { class: "quiet" }, ` ${v.type}  ${bytesText(v.bytes)}`)));
  const mark = marksOf(stages[state.stage]).get(node.id);
  tip.show(event, el("b", {}, node.kind), mark ? el("span", { class: `mark ${mark}` }, WORDS[mark]) : "", outputs,
    missedIn(stages[state.stage], node).map((reason) => el("div", { class: "warn" }, `not applied: ${reason}`)),
    node.source.where ? el("div", { class: "quiet" }, node.source.where, node.source.text ? `  ${node.source.text}` : "") : "");
}

const WORDS = { removed: "removed by this pass", added: "added by this pass", edited: "labelled by this pass", moved_to: "moved by this pass" };
