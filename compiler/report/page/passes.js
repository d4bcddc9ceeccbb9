// The pipeline: a rail that is always there, and a table of all passes.

function showRail() {
  const rail = find("rail");
  if (!rail.childElementCount) fill(rail, stages.map(railItem));
  [...rail.children].forEach((item, index) => {
    const button = item.firstElementChild;
    button.toggleAttribute("aria-current", index === state.stage);
    if (index === state.stage) button.setAttribute("aria-current", "step");
  });
  rail.children[state.stage].scrollIntoView({ block: "nearest", inline: "nearest" });
}

function railItem(stage) {
  const idle = stage.before && !stage.changes && !stage.declined.length;
  const longest = Math.max(...stages.map((each) => each.ms)) || 1;
  const declined = stage.declined.reduce((sum, [, ops]) => sum + ops.length, 0);
  const notes = stage.before
    ? [stage.changes || "no change", declined ? el("b", { class: "badge", title: `${declined} declined` }, `${declined} declined`) : ""]
    : [`${countText(stage.nodes.length)} ops`];
  return el("li", {}, el("button", {
    type: "button", class: idle ? "idle" : "", onclick: () => go({ stage: stage.index }),
    style: { "--share": String(stage.ms / longest) },
  }, el("span", { class: "name" }, stage.before ? stage.name : "as written"), el("span", { class: "ms" }, stage.before ? timeText(stage.ms) : ""),
  el("span", { class: "notes" }, ...notes)));
}

views.overview = function showOverview() {
  const panel = find("panel-overview");
  if (!panel.childElementCount) fill(panel, figures(), pipeline(), accountTables());
  panel.querySelectorAll(".pipeline tbody tr").forEach((row, index) => row.classList.toggle("here", index === state.stage));
};

function figures() {
  const first = stages[0];
  const total = times.passes.reduce((sum, ms) => sum + ms, 0);
  const memory = data.memory;
  const cards = [
    ["Ops", changeText(first.nodes.length, last.nodes.filter((n) => n >= 0).length), "as written, and in the end"],
    ["Kernels", changeText(first.kernelCount, last.kernelCount), "what runs one after another"],
    ["Temporaries", memory ? `${bytesText(first.bytes)} → ${bytesText(memory.arena)}` : bytesText(last.bytes),
      memory ? "if none shared memory, and the arena they share" : "if none shared memory"],
    ["Passes", timeText(total), `${stages.length - 1} of them, checks included`],
  ];
  return el("div", { class: "figures" }, cards.map(([name, value, note]) =>
    el("div", {}, el("h3", {}, name), el("p", { class: "figure" }, value), el("p", { class: "quiet" }, note))));
}

function pipeline() {
  const heads = ["pass", "", "time", "ops", "kernels", "temporaries", "changed", "declined"];
  const largest = Math.max(...stages.map((stage) => stage.bytes)) || 1;
  const longest = Math.max(...times.passes) || 1;
  const rows = stages.map((stage) => pipelineRow(stage, largest, longest));
  return [
    el("h2", {}, "Pipeline"),
    el("p", { class: "quiet lead" }, "Passes run from top to bottom. ~ is a line that a pass edited, + one it brought, − one it took away. Temporaries are counted as if none shared memory; the arena is in the view Memory."),
    el("div", { class: "scroll" }, el("table", { class: "pipeline" },
      el("thead", {}, el("tr", {}, heads.map((head, i) => el("th", { scope: "col", class: i > 1 ? "n" : "" }, head)))),
      el("tbody", {}, rows))),
  ];
}

function pipelineRow(stage, largest, longest) {
  const before = stage.before || stage;
  const open = () => go({ stage: stage.index, tab: stage.before ? "changes" : "graph" });
  const declined = stage.declined.reduce((sum, [, ops]) => sum + ops.length, 0);
  const bar = (share) => ({ class: "n bar", style: { "--share": String(share) } });
  return el("tr", { onclick: open, class: stage.before && !stage.changes ? "idle" : "" },
    el("th", { scope: "row" }, el("button", { type: "button", class: "link" }, stage.before ? stage.name : "as written")),
    el("td", { class: "about" }, prose(stage.about.split("\n")[0])),
    el("td", bar(stage.ms / longest), stage.before ? timeText(stage.ms) : ""),
    el("td", { class: "n" }, changeText(before.nodes.length, stage.nodes.length)),
    el("td", { class: "n" }, changeText(before.kernelCount, stage.kernelCount)),
    el("td", bar(stage.bytes / largest), changeText(before.bytes, stage.bytes, bytesText)),
    el("td", { class: "n" }, stage.changes),
    el("td", { class: "n warn" }, declined ? String(declined) : ""));
}
