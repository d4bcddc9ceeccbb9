// The data of the compilation, and indices derived from it.

const data = JSON.parse(find("data").textContent);
const times = JSON.parse(find("times").textContent);

const vars = data.vars.map(([label, type, bytes, role], id) => ({ id, label, type, bytes, role }));
const sources = data.sources.map(([where, text], id) => ({ id, where, text }));
const lines = data.lines.map(([code, source]) => ({ code, source: sources[source] }));

const nodes = data.nodes.map(([kind, x, y, lane, inputs, outputs, source], id) => ({
  id, kind, x, y, lane, source: sources[source],
  inputs: inputs.map((v) => vars[v]), outputs: outputs.map((v) => vars[v]),
  bytes: outputs.reduce((sum, v) => sum + (vars[v].bytes || 0), 0), links: [],
}));

nodes.forEach((node) => {
  const temporaries = node.outputs.filter((v) => v.role !== "param");
  node.main = [...(temporaries.length ? temporaries : node.outputs)].sort((a, b) => (b.bytes || 0) - (a.bytes || 0))[0] || null;
});

const links = data.links.map(([start, stop, label, stages, hub, way]) => {
  const link = { start: nodes[start], stop: nodes[stop], value: vars[label], stages: new Set(stages), hub, way };
  link.start.links.push(link);
  link.stop.links.push(link);
  return link;
});

// A stage contains only what differs from the previous one.
const stages = [];
data.stages.forEach((given, index) => {
  const before = stages[index - 1];
  const stage = { ...(before && { lines: before.lines, nodes: before.nodes, kernels: before.kernels, starts: before.starts }), ...given };
  stage.index = index;
  stage.before = before || null;
  stage.ms = times.passes[index];
  stage.place = new Map();
  stage.nodes.forEach((node, op) => { if (node >= 0) stage.place.set(node, op); });
  if (given.lines === undefined) {
    stage.marks = new Map();
    stage.rows = [];
  }
  stages.push(stage);
});

// Missed optimisations: node → [stage, reason] …
const missedOf = new Map();
stages.forEach((stage) => stage.missed.forEach(([reason, ops]) => ops.forEach(([, , node]) => {
  if (node >= 0) missedOf.set(node, [...(missedOf.get(node) || []), [stage, reason]]);
})));
const missedIn = (stage, node) => (missedOf.get(node.id) || []).filter(([each]) => each === stage).map(([, reason]) => reason);

const CHANGES = ["same", "edited", "removed", "added", "moved_from", "moved_to"];

// The change of each node in a stage: removed, added, edited, or moved.
function marksOf(stage) {
  if (stage.marks) return stage.marks;
  stage.marks = new Map();
  if (!stage.before) return stage.marks;
  const owner = (one) => {
    const found = new Map();
    one.starts.forEach((start, op) => found.set(start, one.nodes[op]));
    return found;
  };
  const [old, fresh] = [owner(stage.before), owner(stage)];
  for (const [change, a, b] of stage.rows) {
    const node = b >= 0 ? fresh.get(b) : old.get(a);
    if (node === undefined || node < 0 || CHANGES[change] === "moved_from") continue;
    stage.marks.set(node, CHANGES[change]);
  }
  return stage.marks;
}

// The line of an op in a stage; null if it does not exist in it.
function lineOf(stage, node) {
  const op = stage.place.get(node.id);
  return op === undefined ? null : lines[stage.lines[stage.starts[op]]];
}

function feedsOf(stage, node) { return node.kind === "feed" || stage.place.has(node.id); }

// The ops of the last stage, grouped by kernel: the steps of the plan.
const last = stages[stages.length - 1];
const steps = [];
last.nodes.forEach((node, op) => {
  const kernel = last.kernels[op];
  const open = steps[steps.length - 1];
  if (open && kernel >= 0 && open.kernel === kernel) open.ops.push(op);
  else steps.push({ index: steps.length, kernel, ops: [op] });
});
const stepOfNode = new Map();
steps.forEach((step) => step.ops.forEach((op) => { if (last.nodes[op] >= 0) stepOfNode.set(last.nodes[op], step); }));

function stepText(step) {
  const kinds = step.ops.map((op) => (last.nodes[op] >= 0 ? nodes[last.nodes[op]].kind : "delete_var"));
  return [...new Set(kinds)].join(" + ");
}

const maker = new Map();
nodes.forEach((node) => node.outputs.forEach((v) => { if (!maker.has(v.id) || stepOfNode.has(node.id)) maker.set(v.id, node); }));

// The kind of work of an op, which determines its colour.
const FAMILIES = [
  ["product", /conv|^mul$|matmul|^fc$|^bmm$|^dot$|lookup_table|gru|lstm|^sequence_conv/],
  ["norm", /norm$|^lrn|softmax(?!_with)/],
  ["activation", /relu|sigmoid|tanh|gelu|swish|elu|^exp$|^sqrt$|^square$|dropout|softplus|prelu|maxout/],
  ["pool", /pool|^reduce_|^mean$|^sum$|interp|^max$|^min$|^argmax|^top_k/],
  ["loss", /entropy|loss|accuracy|^auc|square_error|^huber|^cos_sim/],
  ["feed", /^feed$|^fill|^assign|random|^range$/],
  ["shape", /reshape|transpose|concat|split|slice|stack|squeeze|flatten|expand|gather|scatter|pad|^shape$|^cast$/],
];
const families = new Map();
function familyOf(node) {
  if (node.lane === 2) return "update";
  if (!families.has(node.kind)) {
    const plain = node.kind.replace(/_grad(_grad)?$/, "");
    families.set(node.kind, (FAMILIES.find(([, pattern]) => pattern.test(plain)) || ["other"])[0]);
  }
  return families.get(node.kind);
}
