// The pipeline: the sidebar of passes, and a table of all passes.

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
  const idle = stage.before && !stage.changes && !stage.missed.length;
  const longest = Math.max(...stages.map((each) => each.ms)) || 1;
  const missed = stage.missed.reduce((sum, [, ops]) => sum + ops.length, 0);
  const notes = stage.before
    ? [stage.changes || "no change", missed ? el("b", { class: "badge", title: `${missed} missed` }, `${missed} missed`) : ""]
    : [`${countText(stage.nodes.length)} ops`];
  return el("li", {}, el("button", {
    type: "button", class: idle ? "idle" : "", onclick: () => go({ stage: stage.index }),
    style: { "--share": String(stage.ms / longest) },
  }, el("span", { class: "name" }, stage.before ? stage.name : "as written"), el("span", { class: "ms" }, stage.before ? timeText(stage.ms) : ""),
  el("span", { class: "notes" }, ...notes)));
}

views.overview = function showOverview() {
  const panel = find("panel-overview");
  if (!panel.childElementCount) fill(panel, figures(), pipeline(), costTables(), rooflineChart());
  panel.querySelectorAll(".pipeline tbody tr").forEach((row, index) => row.classList.toggle("here", index === state.stage));
};

function figures() {
  const first = stages[0];
  const total = times.passes.reduce((sum, ms) => sum + ms, 0);
  const memory = data.memory;
  const cards = [
    ["Ops", changeText(first.nodes.length, last.nodes.filter((n) => n >= 0).length), "as written → after all passes"],
    ["Kernels", changeText(first.kernelCount, last.kernelCount), "launches per step, in sequence"],
    ["Temporaries", memory ? `${bytesText(first.bytes)} → ${bytesText(memory.arena)}` : bytesText(last.bytes),
      memory ? "sum without sharing → arena" : "sum without sharing"],
    ["Passes", timeText(total), `${stages.length - 1} passes, including checks`],
  ];
  return el("div", { class: "figures" }, cards.map(([name, value, note]) =>
    el("div", {}, el("h3", {}, name), el("p", { class: "figure" }, value), el("p", { class: "quiet" }, note))));
}

function pipeline() {
  const heads = ["pass", "", "time", "ops", "kernels", "temporaries", "changed", "missed"];
  const largest = Math.max(...stages.map((stage) => stage.bytes)) || 1;
  const longest = Math.max(...times.passes) || 1;
  const rows = stages.map((stage) => pipelineRow(stage, largest, longest));
  return [
    el("h2", {}, "Pipeline"),
    el("p", { class: "quiet lead" }, "Passes run from top to bottom. ~ is an edited line, + an added one, − a removed one. Temporaries are summed without sharing; see Memory for the arena."),
    el("div", { class: "scroll" }, el("table", { class: "pipeline" },
      el("thead", {}, el("tr", {}, heads.map((head, i) => el("th", { scope: "col", class: i > 1 ? "n" : "" }, head)))),
      el("tbody", {}, rows))),
  ];
}

function pipelineRow(stage, largest, longest) {
  const before = stage.before || stage;
  const open = () => go({ stage: stage.index, tab: stage.before ? "changes" : "graph" });
  const missed = stage.missed.reduce((sum, [, ops]) => sum + ops.length, 0);
  const bar = (share) => ({ class: "n bar", style: { "--share": String(share) } });
  return el("tr", { onclick: open, class: stage.before && !stage.changes ? "idle" : "" },
    el("th", { scope: "row" }, el("button", { type: "button", class: "link" }, stage.before ? stage.name : "as written")),
    el("td", { class: "about" }, prose(stage.about.split("\n")[0])),
    el("td", bar(stage.ms / longest), stage.before ? timeText(stage.ms) : ""),
    el("td", { class: "n" }, changeText(before.nodes.length, stage.nodes.length)),
    el("td", { class: "n" }, changeText(before.kernelCount, stage.kernelCount)),
    el("td", bar(stage.bytes / largest), changeText(before.bytes, stage.bytes, bytesText)),
    el("td", { class: "n" }, stage.changes),
    el("td", { class: "n warn" }, missed ? String(missed) : ""));
}
