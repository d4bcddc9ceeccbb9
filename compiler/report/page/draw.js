// Drawing of the graph: links, nodes and minimap; more detail at higher zoom.

const drawGraph = onceAFrame(() => {
  if (!graph.canvas || find("panel-graph").hidden) return;
  const stage = stages[state.stage];
  if (graph.stage !== stage) { graph.stage = stage; graph.paths = pathsOf(stage); }
  const { context, width, height } = prepare(graph.canvas);
  context.scale(camera.scale, camera.scale);
  context.translate(-camera.x, -camera.y);
  const seen = { left: camera.x, top: camera.y, right: camera.x + width / camera.scale, bottom: camera.y + height / camera.scale };
  drawLanes(context, seen);
  drawLinks(context);
  const chosen = state.op === null ? graph.hover : nodes[state.op];
  const near = chosen ? drawNear(context, stage, chosen) : null;
  for (const node of nodes) {
    const { x, y } = centre(node);
    if (x < seen.left - 90 || x > seen.right + 90 || y < seen.top - 30 || y > seen.bottom + 30) continue;
    if (visible(node)) drawNode(context, stage, node, x, y, state.op !== null && !near.has(node));
  }
  context.setTransform(devicePixelRatio || 1, 0, 0, devicePixelRatio || 1, 0, 0);
  nameLanes(context);
  drawMap();
  showWhatNow(stage);
});

// The path of a link: down or up from layer to layer, across between lanes.
function trace(path, link) {
  const a = centre(link.start), b = centre(link.stop);
  if (link.start.lane !== link.stop.lane || link.start.lane === 2) {
    const right = b.x > a.x, side = (right ? 1 : -1) * NODE.width / 2, middle = (a.x + b.x) / 2;
    path.moveTo(a.x + side, a.y);
    path.bezierCurveTo(middle, a.y, middle, b.y, b.x - side, b.y);
    return;
  }
  const down = b.y > a.y ? 1 : -1;
  let x = a.x, y = a.y + down * NODE.height / 2;
  path.moveTo(x, y);
  for (let i = 0; i <= link.way.length; i += 2) {
    const end = i >= link.way.length;
    const next = end ? b.x : link.way[i] * NODE.across, stop = end ? b.y - down * NODE.height / 2 : link.way[i + 1] * NODE.down;
    const middle = (y + stop) / 2;
    path.bezierCurveTo(x, middle, next, middle, next, stop);
    [x, y] = [next, stop];
  }
}

function pathsOf(stage) {
  const inside = new Path2D(), across = new Path2D();
  for (const link of links) {
    if (!link.hub && link.stages.has(stage.index)) trace(link.start.lane === link.stop.lane ? inside : across, link);
  }
  return { inside, across };
}

function drawLinks(context) {
  context.lineWidth = Math.max(1.1, 0.5 / camera.scale);
  context.strokeStyle = colour("link-across");
  context.stroke(graph.paths.across);
  context.lineWidth = Math.max(1.4, 0.7 / camera.scale);
  context.strokeStyle = colour("link-inside");
  context.stroke(graph.paths.inside);
}

// Highlight the links of one node; return it with its neighbours.
function drawNear(context, stage, node) {
  const near = new Set([node]);
  const made = new Path2D(), read = new Path2D();
  for (const link of node.links) {
    if (!link.stages.has(stage.index)) continue;
    trace(link.start === node ? made : read, link);
    near.add(link.start).add(link.stop);
  }
  context.lineWidth = Math.max(2.4, 1.4 / camera.scale);
  context.strokeStyle = colour("reads");
  context.stroke(read);
  context.strokeStyle = colour("accent");
  context.stroke(made);
  return near;
}

function drawLanes(context, seen) {
  if (data.lanes.length < 2) return;
  for (const [lane, left, right] of data.lanes) {
    const x = (left - 0.62) * NODE.across, width = (right - left + 1.24) * NODE.across;
    context.fillStyle = colour("lane");
    context.fillRect(x, seen.top - 10, width, seen.bottom - seen.top + 20);
  }
}

// Lane titles at the top of the visible area, in the page's text size.
function nameLanes(context) {
  if (data.lanes.length < 2) return;
  context.font = `600 13px ${colour("sans")}`;
  context.textAlign = "center";
  for (const [lane, left, right] of data.lanes) {
    const x = (((left + right) / 2) * NODE.across - camera.x) * camera.scale;
    const y = Math.max(20, (-26 - camera.y) * camera.scale), width = context.measureText(LANES[lane]).width + 20;
    if (width > (right - left + 1.4) * NODE.across * camera.scale) continue;
    context.fillStyle = colour("lane");
    context.beginPath();
    context.roundRect(x - width / 2, y - 16, width, 23, 11);
    context.fill();
    context.fillStyle = colour("quiet");
    context.fillText(LANES[lane], x, y);
  }
}

function drawNode(context, stage, node, x, y, dimmed) {
  const { width, height } = NODE;
  const mark = marksOf(stage).get(node.id);
  const left = x - width / 2, top = y - height / 2;
  context.globalAlpha = mark === "removed" ? 0.5 : dimmed ? 0.28 : 1;
  context.fillStyle = colour(`${familyOf(node)}`);
  context.beginPath();
  context.roundRect(left, top, width, height, node.kind === "feed" ? 17 : 7);
  context.fill();
  const outline = { removed: "removed-line", added: "added-line", edited: "edited-line", moved_to: "moved-line" }[mark];
  const chosen = node.id === state.op;
  if (outline || chosen || node === graph.hover) {
    context.lineWidth = Math.max(chosen ? 3 : 2, (chosen ? 2.5 : 1.2) / camera.scale);
    context.strokeStyle = colour(chosen ? "ink" : outline || "ink");
    context.setLineDash(mark === "removed" && !chosen ? [6, 4] : []);
    context.stroke();
    context.setLineDash([]);
  }
  if (missedIn(stage, node).length) {
    context.fillStyle = colour("edited-line");
    context.beginPath();
    context.arc(left + width - 9, top + 9, Math.max(4, 2.5 / camera.scale), 0, 7);
    context.fill();
  }
  if (camera.scale > 0.3) writeNode(context, stage, node, left, top);
  context.globalAlpha = 1;
}

function writeNode(context, stage, node, left, top) {
  const op = stage.place.get(node.id);
  const kernel = op === undefined ? -1 : stage.kernels[op];
  if (kernel >= 0) {
    context.fillStyle = `hsl(${(kernel * 137) % 360} 65% ${dark.matches ? 62 : 42}%)`;
    context.fillRect(left + 5, top + 6, 3, NODE.height - 12);
  }
  const close = camera.scale > 0.62 && node.main;
  const kind = node.kind === "feed" ? node.main.label : node.kind.replace(/^(.*)_grad$/, "∇ $1");
  context.textAlign = "left";
  context.fillStyle = colour("node-ink");
  const room = NODE.width - 22, size = close ? 12 : Math.min(18, 10 / camera.scale);
  context.font = `600 ${size}px ${colour("sans")}`;
  const shrunk = Math.max(0.72, Math.min(1, (0.98 * room) / context.measureText(kind).width));
  if (shrunk < 1) context.font = `600 ${size * shrunk}px ${colour("sans")}`;
  context.textBaseline = close ? "alphabetic" : "middle";
  context.fillText(clipped(context, kind, room), left + 13, close ? top + 15 : top + NODE.height / 2 + 1);
  context.textBaseline = "alphabetic";
  if (!close) return;
  context.globalAlpha *= 0.75;
  context.font = `10px ${colour("mono")}`;
  context.fillText(clipped(context, node.main.type, room), left + 13, top + 27);
}

function clipped(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  while (text && context.measureText(`${text}…`).width > width) text = text.slice(0, -1);
  return `${text}…`;
}

// ---- minimap ----

function mapFrame() {
  const { width, height } = graph.map.getBoundingClientRect();
  const all = extent(), scale = Math.min((width - 8) / all.width, (height - 8) / all.height);
  return { all, scale, left: (width - all.width * scale) / 2, top: (height - all.height * scale) / 2 };
}

function drawMap() {
  const { context } = prepare(graph.map);
  const { all, scale, left, top } = mapFrame(), seen = box(), stage = stages[state.stage];
  const x = (value) => left + (value - all.x) * scale, y = (value) => top + (value - all.y) * scale;
  for (const node of nodes) {
    if (!visible(node)) continue;
    const at = centre(node), mark = marksOf(stage).get(node.id);
    context.fillStyle = colour(mark ? `${{ removed: "removed", added: "added", edited: "edited", moved_to: "moved" }[mark]}-line` : familyOf(node));
    context.fillRect(x(at.x - NODE.width / 2), y(at.y) - 1, Math.max(2, NODE.width * scale), Math.max(1.5, NODE.height * scale));
  }
  context.strokeStyle = colour("accent");
  context.lineWidth = 1.5;
  context.strokeRect(x(camera.x), y(camera.y), (seen.width / camera.scale) * scale, (seen.height / camera.scale) * scale);
}

// A summary of the changes of this pass.
function showWhatNow(stage) {
  const marks = [...marksOf(stage).values()];
  const of = (mark) => marks.filter((each) => each === mark).length;
  const missed = stage.missed.reduce((sum, [, ops]) => sum + ops.length, 0);
  const parts = [["added", "added"], ["removed", "removed"], ["edited", "labelled"], ["moved_to", "moved"]]
    .filter(([mark]) => of(mark)).map(([mark, word]) => el("span", { class: `mark ${mark}` }, `${countText(of(mark))} ${word}`));
  if (missed) parts.push(el("span", { class: "mark edited" }, `● ${countText(missed)} missed`));
  fill(find("whatnow"), el("b", {}, stage.before ? stage.name : "as written"), parts.length ? parts : el("span", { class: "quiet" }, stage.before ? "no changes" : `${countText(stage.place.size)} ops`));
}
