// Cost tables: bytes and operations of kernels after each pass, and the minimum time on a GPU.

function costTables() {
  const cost = data.cost;
  if (!cost) return [];
  const sizes = Object.entries(cost.sizes).map(([name, size]) => `, ${name} = ${size}`).join("");
  return [
    el("h2", {}, `Cost on ${cost.gpu}${sizes}`),
    el("p", { class: "quiet lead" }, `Bytes that kernels move, compared with the ideal: each input of a step read once, each output written once. The minimum time is given by bandwidth (${scaledText(cost.bandwidth)}B/s) and arithmetic rates: ${cost.source}.`),
    costTable(["after", "launches", "read", "written", "ideal", "of ideal", "operations", "copies", "on the host", "min time"], changedPasses(cost.passes).map(costRow)),
    el("h3", {}, "Slowest kernels"),
    costTable(["kernel", "where", "read", "written", "operations", "min time", "bound by"], slowestKernels(cost.kernels).map(kernelRow)),
  ];
}

function costTable(heads, rows) {
  return el("div", { class: "scroll" }, el("table", { class: "alive" },
    el("thead", {}, el("tr", {}, heads.map((head, i) => el("th", { scope: "col", class: i ? "n" : "" }, head)))),
    el("tbody", {}, rows.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row" }, name), cells.map((cell) => el("td", { class: "n" }, cell)))))));
}

// The passes that change any of the numbers.
function changedPasses(passes) {
  const text = (row) => JSON.stringify({ ...row, pass: "" });
  return passes.filter((row, index) => !index || text(row) !== text(passes[index - 1]));
}

function costRow(row) {
  const moved = row.read + row.written;
  return [row.pass === "start" ? "as written" : row.pass, String(row.launches), `${scaledText(row.read)}B`, `${scaledText(row.written)}B`, `${scaledText(row.ideal)}B`,
    row.ideal ? `${(moved / row.ideal).toFixed(2)} ×` : "", scaledText(row.operations),
    row.copies ? `${row.copies}, ${scaledText(row.copied)}B` : "", row.host_steps ? `${row.host_steps}, ${scaledText(row.host_moved)}B` : "", timeText(row.seconds * 1e3)];
}

function slowestKernels(kernels) {
  return [...kernels].sort((a, b) => b.seconds - a.seconds).slice(0, 30);
}

function kernelRow(row) {
  return [row.kernel, row.side, `${scaledText(row.read)}B`, `${scaledText(row.written)}B`, scaledText(row.operations), timeText(row.seconds * 1e3), row.bound];
}

function scaledText(number) {
  for (const [factor, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (number >= factor) return `${(number / factor).toFixed(2)} ${letter}`;
  }
  return `${number} `;
}
