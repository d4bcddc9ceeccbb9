// The account: what kernels move and compute after each pass, and the least time a GPU needs for it.

function accountTables() {
  const account = data.account;
  if (!account) return [];
  const sizes = Object.entries(account.sizes).map(([name, size]) => `, ${name} = ${size}`).join("");
  return [
    el("h2", {}, `Account, ${account.gpu}${sizes}`),
    el("p", { class: "quiet lead" }, `Bytes that kernels move, beside the ideal: each input of a step read once, each output written once. The time is the least that bandwidth (${scaledText(account.bandwidth)}B/s) and arithmetic allow: ${account.source}.`),
    accountTable(["after", "launches", "read", "written", "ideal", "of ideal", "operations", "copies", "on the host", "at least"], changedPasses(account.passes).map(accountRow)),
    el("h3", {}, "Kernels that take longest"),
    accountTable(["kernel", "where", "read", "written", "operations", "at least", "bound by"], slowestKernels(account.kernels).map(kernelRow)),
  ];
}

function accountTable(heads, rows) {
  return el("div", { class: "scroll" }, el("table", { class: "alive" },
    el("thead", {}, el("tr", {}, heads.map((head, i) => el("th", { scope: "col", class: i ? "n" : "" }, head)))),
    el("tbody", {}, rows.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row" }, name), cells.map((cell) => el("td", { class: "n" }, cell)))))));
}

// The passes after which anything is another number.
function changedPasses(passes) {
  const text = (row) => JSON.stringify({ ...row, pass: "" });
  return passes.filter((row, index) => !index || text(row) !== text(passes[index - 1]));
}

function accountRow(row) {
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
