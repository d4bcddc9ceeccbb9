// The arena over time: buffers as bars, live bytes as a line, and a table of the selected step.

const arena = { canvas: null, bars: [], live: [], peak: 0, from: 0, to: 1, hover: null };
const MARGIN = { left: 76, right: 14, top: 26, bottom: 26 };

function readMemory() {
  if (!data.memory || arena.bars.length) return;
  arena.bars = data.memory.bars.map(([name, offset, bytes, start, stop, holds], id) => ({ id, name, offset, bytes, start, stop, holds: holds.map(([v, step]) => ({ value: v, step })) }));
  const count = Math.max(...arena.bars.map((bar) => bar.stop));
  const change = new Float64Array(count + 1);
  arena.bars.forEach((bar) => { change[bar.start] += bar.bytes; change[bar.stop] -= bar.bytes; });
  let sum = 0;
  arena.live = [...change.slice(0, count)].map((each) => (sum += each));
  arena.peak = arena.live.indexOf(Math.max(...arena.live));
  [arena.from, arena.to] = [0, count];
}

views.memory = function showMemory() {
  readMemory();
  const panel = find("panel-memory");
  if (!arena.bars.length) { fill(panel, el("p", { class: "quiet lead" }, "The arena of this program is empty.")); return; }
  if (!arena.canvas) buildMemory(panel);
  const step = state.step === null ? arena.peak : Math.min(state.step, arena.live.length - 1);
  find("step").value = step;
  explainStep(step);
  drawArena();
};

function buildMemory(panel) {
  arena.canvas = el("canvas", { class: "arena", role: "img", "aria-label": `The arena over ${arena.live.length} steps; the table below lists the selected step.` });
  const facts = [
    ["arena", bytesText(data.memory.arena)], ["largest live set", bytesText(arena.live[arena.peak])],
    ["arena ÷ live", (data.memory.arena / (arena.live[arena.peak] || 1)).toFixed(3)],
    ["without sharing", bytesText(arena.bars.reduce((all, bar) => all + bar.bytes, 0))],
  ];
  fill(panel,
    el("h2", {}, "Memory", el("small", {}, data.memory.sizes)),
    el("p", { class: "quiet lead" }, "The x-axis is the step, the y-axis the address; a bar is a buffer over its live range, and the dashed line the sum of live bytes. Click a step to list its live buffers; drag to zoom into a range of steps, double-click to reset."),
    el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    arena.canvas,
    el("div", { class: "stepper" }, el("label", { for: "step" }, "step"), el("input", { id: "step", type: "range", min: 0, max: arena.live.length - 1, oninput: (event) => go({ step: Number(event.target.value) }) }),
      el("button", { type: "button", onclick: () => go({ step: arena.peak }) }, "peak")),
    el("div", { id: "alive" }));
  listenArena();
  new ResizeObserver(() => drawArena()).observe(arena.canvas);
}

function explainStep(step) {
  const alive = arena.bars.filter((bar) => bar.start <= step && step < bar.stop).sort((a, b) => b.bytes - a.bytes || a.id - b.id);
  const total = arena.live[step];
  const at = steps[step];
  const head = step === arena.peak ? "Peak" : "Live";
  const op = at && at.ops.map((i) => last.nodes[i]).find((node) => node >= 0);
  fill(find("alive"),
    el("h3", {}, `${head}: ${bytesText(total)} in step ${countText(step)} of ${countText(arena.live.length)}`, at ? el("small", {}, stepText(at), op !== undefined ? [" · ", opButton(nodes[op], nodes[op].source.where || "show")] : "") : el("small", {}, "return of the results")),
    el("p", { class: "quiet" }, reasonFor(step, alive)),
    el("div", { class: "scroll" }, el("table", { class: "alive" }, el("thead", {}, el("tr", {}, ["", "value", "type", "bytes", "share", "written in", "last use", "line"].map((head, i) => el("th", { scope: "col", class: i === 3 || i === 4 ? "n" : "" }, head)))),
      el("tbody", {}, alive.map((bar) => aliveRow(bar, step, total, alive[0].bytes))))));
}

// Why this much is live: how much of it is new, and how much is needed by a later step.
function reasonFor(step, alive) {
  const sum = (bars) => bars.reduce((all, bar) => all + bar.bytes, 0);
  const fresh = alive.filter((bar) => bar.start === step), ending = alive.filter((bar) => bar.stop === step + 1), waiting = alive.filter((bar) => bar.start < step && bar.stop > step + 1);
  const parts = [[fresh, "begin here"], [ending, "end here"], [waiting, "are needed by a later step"]].filter(([bars]) => bars.length);
  const saved = sum(alive.filter((bar) => bar.start < step && isSaved(bar)));
  const kept = saved ? ` ${bytesText(saved)}, ${percent(saved, sum(alive))}, are activations saved for backward.` : "";
  return `${countText(alive.length)} buffers: ${parts.map(([bars, text]) => `${countText(bars.length)} (${bytesText(sum(bars))}) ${text}`).join(", ")}.${kept}`;
}

// Whether a buffer is written by a forward op and last read by a gradient op.
function isSaved(bar) {
  const lanes = (step) => (steps[step] ? steps[step].ops.map((op) => last.nodes[op]).filter((node) => node >= 0).map((node) => nodes[node].lane) : []);
  return lanes(bar.start).includes(0) && lanes(bar.stop - 1).includes(1);
}

function holding(bar, step) {
  const held = bar.holds.filter((each) => each.step <= step);
  return held.length ? vars[held[held.length - 1].value] : null;
}

// All values a buffer holds in its live range, successively or as sub-buffers; "" for one value.
function contents(bar) {
  const labels = [...new Set(bar.holds.map((each) => vars[each.value].label))];
  const more = labels.length > 8 ? ` and ${labels.length - 8} more` : "";
  return labels.length > 1 ? `holds, successively or as sub-buffers: ${labels.slice(0, 8).join(", ")}${more}` : "";
}

function aliveRow(bar, step, total, most) {
  const value = holding(bar, step), node = value && maker.get(value.id);
  const end = steps[bar.stop - 1];
  return el("tr", {}, el("td", {}, el("i", { class: "swatch", style: { background: barColour(bar) } })),
    el("th", { scope: "row", title: contents(bar) || null }, node ? opButton(node, value.label) : value ? value.label : "workspace",
      contents(bar) ? el("span", { class: "quiet" }, ` +${new Set(bar.holds.map((each) => each.value)).size - 1}`) : ""), el("td", {}, value ? el("code", {}, value.type) : el("span", { class: "quiet" }, "of its kernel")),
    el("td", { class: "n" }, bytesText(bar.bytes)), el("td", { class: "n bar", style: { "--share": String(bar.bytes / most) } }, percent(bar.bytes, total)),
    el("td", {}, `${countText(bar.start)}  `, el("span", { class: "quiet" }, steps[bar.start] ? stepText(steps[bar.start]) : "")),
    el("td", {}, `${countText(bar.stop - 1)}  `, el("span", { class: "quiet" }, end ? stepText(end) : "return")), el("td", { class: "quiet" }, node ? node.source.where : ""));
}

const opButton = (node, text) => el("button", { type: "button", class: "link", onclick: () => go({ tab: "graph", op: node.id, stage: stages.length - 1 }) }, text);

// ---- drawing ----

function barColour(bar) {
  const value = bar.holds.length ? maker.get(bar.holds[0].value) : null;
  return value ? colour(familyOf(value)) : colour("other");
}

const arenaScale = () => {
  const { width, height } = arena.canvas.getBoundingClientRect();
  const top = Math.max(data.memory.arena, arena.live[arena.peak], 1) * 1.06;
  return {
    width, height,
    x: (step) => MARGIN.left + ((step - arena.from) * (width - MARGIN.left - MARGIN.right)) / (arena.to - arena.from),
    y: (bytes) => height - MARGIN.bottom - (bytes * (height - MARGIN.top - MARGIN.bottom)) / top,
    step: (x) => Math.floor(arena.from + ((x - MARGIN.left) * (arena.to - arena.from)) / (width - MARGIN.left - MARGIN.right)),
    bytes: (y) => ((height - MARGIN.bottom - y) * top) / (height - MARGIN.top - MARGIN.bottom),
  };
};

const drawArena = onceAFrame(() => {
  if (!arena.canvas || find("panel-memory").hidden) return;
  const { context } = prepare(arena.canvas);
  const scale = arenaScale();
  const step = Number(find("step").value);
  drawAxes(context, scale);
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, 0, scale.width - MARGIN.left - MARGIN.right, scale.height);
  context.clip();
  for (const bar of arena.bars) drawBar(context, scale, bar, bar.start <= step && step < bar.stop);
  drawLive(context, scale);
  context.fillStyle = colour("now");
  context.fillRect(scale.x(step), MARGIN.top - 8, Math.max(2, scale.x(step + 1) - scale.x(step)), scale.height - MARGIN.top - MARGIN.bottom + 8);
  context.restore();
  drawPeak(context, scale);
});

function drawAxes(context, scale) {
  context.font = `11px ${colour("sans")}`;
  context.fillStyle = colour("quiet");
  context.strokeStyle = colour("line");
  context.lineWidth = 1;
  for (let part = 0; part <= 4; part++) {
    const y = Math.round(scale.y((data.memory.arena * part) / 4)) + 0.5;
    context.textAlign = "right";
    context.fillText(bytesText((data.memory.arena * part) / 4), MARGIN.left - 8, y + 4);
    context.beginPath(); context.moveTo(MARGIN.left, y); context.lineTo(scale.width - MARGIN.right, y); context.stroke();
  }
  context.textAlign = "center";
  const every = niceStep((arena.to - arena.from) / 9);
  for (let step = Math.ceil(arena.from / every) * every; step < arena.to; step += every) context.fillText(countText(step), scale.x(step), scale.height - 8);
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return Math.max(1, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least) || 1);
}

function drawBar(context, scale, bar, alive) {
  const x = scale.x(bar.start), y = scale.y(bar.offset + bar.bytes);
  const width = Math.max(1, scale.x(bar.stop) - x), height = Math.max(0.75, scale.y(bar.offset) - y);
  context.globalAlpha = alive || bar === arena.hover ? 1 : 0.62;
  context.fillStyle = barColour(bar);
  context.fillRect(x, y, width, height);
  context.globalAlpha = 1;
  if (height > 2.5 && width > 2.5) { context.lineWidth = 0.75; context.strokeStyle = colour("raised"); context.strokeRect(x, y, width, height); }
  if (bar === arena.hover) { context.lineWidth = 1.5; context.strokeStyle = colour("ink"); context.strokeRect(x, y, width, height); }
  if (height < 14 || width < 60) return;
  context.fillStyle = colour("node-ink");
  context.font = `10.5px ${colour("mono")}`;
  context.textAlign = "left";
  context.fillText(clipped(context, bar.holds.length ? bar.name : "workspace", width - 8), x + 4, y + 11);
}

function drawLive(context, scale) {
  context.beginPath();
  arena.live.forEach((bytes, step) => { context.lineTo(scale.x(step), scale.y(bytes)); context.lineTo(scale.x(step + 1), scale.y(bytes)); });
  context.strokeStyle = colour("ink");
  context.lineWidth = 1.4;
  context.setLineDash([5, 3]);
  context.stroke();
  context.setLineDash([]);
}

function drawPeak(context, scale) {
  const x = scale.x(arena.peak + 0.5), y = scale.y(arena.live[arena.peak]);
  if (x < MARGIN.left || x > scale.width - MARGIN.right) return;
  context.fillStyle = colour("ink");
  context.beginPath(); context.arc(x, y, 3.5, 0, 7); context.fill();
  context.font = `600 12px ${colour("sans")}`;
  context.textAlign = x > scale.width / 2 ? "right" : "left";
  context.fillText(`peak ${bytesText(arena.live[arena.peak])}, step ${countText(arena.peak)}`, x + (x > scale.width / 2 ? -8 : 8), y - 8);
}

function listenArena() {
  const { canvas } = arena;
  let pressed = null;
  const at = (event) => { const corner = canvas.getBoundingClientRect(); return { x: event.clientX - corner.left, y: event.clientY - corner.top }; };
  const stepAt = (event) => clamp(String(arenaScale().step(at(event).x)), arena.live.length);
  canvas.addEventListener("pointerdown", (event) => { pressed = { x: event.clientX, step: stepAt(event) }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", (event) => {
    const [from, to] = [pressed.step, stepAt(event)].sort((a, b) => a - b);
    if (Math.abs(event.clientX - pressed.x) < 6) go({ step: from });
    else if (to > from) { [arena.from, arena.to] = [from, to + 1]; drawArena(); }
    pressed = null;
  });
  canvas.addEventListener("dblclick", () => { [arena.from, arena.to] = [0, arena.live.length]; drawArena(); });
  canvas.addEventListener("pointermove", (event) => {
    const scale = arenaScale(), point = at(event), step = stepAt(event), bytes = scale.bytes(point.y);
    const bar = arena.bars.find((each) => each.start <= step && step < each.stop && each.offset <= bytes && bytes < each.offset + each.bytes) || null;
    if (arena.hover !== bar) { arena.hover = bar; drawArena(); }
    if (!bar) { tip.hide(); return; }
    const value = holding(bar, step), node = value && maker.get(value.id);
    tip.show(event, el("b", {}, value ? value.label : "workspace"), el("div", {}, value ? el("code", {}, value.type) : "workspace of a kernel", ` · ${bytesText(bar.bytes)}`),
      el("div", { class: "quiet" }, `steps ${bar.start} to ${bar.stop - 1}, at ${countText(bar.offset)}`), contents(bar) ? el("div", { class: "quiet" }, contents(bar)) : "", node && node.source.where ? el("div", { class: "quiet" }, node.source.where) : "");
  });
  canvas.addEventListener("pointerleave", () => { arena.hover = null; tip.hide(); drawArena(); });
}
