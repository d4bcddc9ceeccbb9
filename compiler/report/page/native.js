// Native code: the kernels of a step with LLVM IR and assembly, its cost, and the roofline.

function nativeStep(index) {
  const native = data.native;
  if (!native || !native.steps[index]) return [];
  const [names, flops, moved, reason, seconds, share] = native.steps[index];
  if (!names.length) return reason ? [el("h3", {}, "native code"), el("p", { class: "quiet" }, `In NumPy: ${reason}.`)] : [];
  const facts = [`${scaledText(flops)}flops`, `${scaledText(moved)}B`, moved ? `${(flops / moved).toFixed(2)} flops/byte` : ""];
  if (seconds) facts.push(timeText(seconds * 1e3), `${(flops / seconds / 1e9).toFixed(1)} GFLOP/s`, `${(moved / seconds / 1e9).toFixed(1)} GB/s`);
  if (share != null) facts.push(`${(share * 100).toFixed(0)} % of the roofline`);
  return [el("h3", {}, `native code, ${native.machine}`), el("p", {}, facts.filter(Boolean).join(" · ")), names.map(nativeKernel)];
}

function nativeKernel(name) {
  const [text, assembly] = data.native.kernels[name];
  return [el("h3", {}, "kernel ", el("code", {}, name)), folded("LLVM IR", text), assembly ? folded("assembly", assembly) : []];
}

// A listing that is made when it is opened.
function folded(title, text) {
  const source = text.trim().split("\n");
  const made = el("details", {}, el("summary", {}, `${title}, ${countText(source.length)} lines`));
  made.addEventListener("toggle", () => { if (made.open && made.childElementCount === 1) made.append(listing(source, 0)); });
  return made;
}

// The chart is SVG that the compiler wrote; names in it are escaped, and no script in it would run.
function rooflineChart() {
  if (!data.native || !data.native.chart) return [];
  const parsed = new DOMParser().parseFromString(data.native.chart, "image/svg+xml");
  return [el("h2", { style: { "margin-top": "2rem" } }, "Roofline of this CPU"), el("p", { class: "quiet lead" }, "Measured steps: the longer its time, the larger a dot. Slopes are the bandwidth of copies of so many bytes."), document.importNode(parsed.documentElement, true)];
}
