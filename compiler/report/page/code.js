// The generated module: each kernel with its ops, and the full source.

views.code = function showCode() {
  const panel = find("panel-code");
  if (!data.code.source) { fill(panel, el("p", { class: "quiet lead" }, "No code was generated.")); return; }
  if (!panel.childElementCount) buildCode(panel);
  const chosen = state.kernel === null ? Math.max(0, steps.findIndex((step) => step.ops.length > 1)) : state.kernel;
  [...find("kernels").children].forEach((item, index) => {
    if (index === chosen) { item.firstElementChild.setAttribute("aria-current", "true"); item.scrollIntoView({ block: "nearest" }); }
    else item.firstElementChild.removeAttribute("aria-current");
  });
  showKernel(chosen);
};

function buildCode(panel) {
  const items = data.code.kernels.map((_, index) => el("li", {}, el("button", { type: "button", onclick: () => go({ kernel: index }) },
    el("span", { class: "at" }, String(index)), el("span", { class: "what" }, steps[index] ? stepText(steps[index]) : ""), steps[index] && steps[index].ops.length > 1 ? el("b", { class: "badge", title: `${steps[index].ops.length} ops in one kernel` }, `×${steps[index].ops.length}`) : "")));
  const filter = el("input", { type: "search", placeholder: "filter kernels", "aria-label": "Filter kernels", oninput: (event) => {
    const text = event.target.value.toLowerCase();
    [...find("kernels").children].forEach((item) => { item.hidden = !item.textContent.toLowerCase().includes(text); });
  } });
  fill(panel, el("div", { class: "kernellist" }, filter, el("ol", { id: "kernels" }, items)), el("div", { id: "kernel", tabindex: 0 }));
}

function showKernel(index) {
  const [first, stop] = data.code.kernels[index] || [0, 0];
  const source = data.code.source.split("\n");
  const step = steps[index];
  const whole = el("details", {}, el("summary", {}, `The full module, ${countText(source.length)} lines`));
  whole.addEventListener("toggle", () => { if (whole.open && whole.childElementCount === 1) whole.append(listing(source, 0)); });
  fill(find("kernel"), el("h2", {}, step ? stepText(step) : "kernel", el("small", {}, `kernel ${index} of ${data.code.kernels.length}`)),
    el("h3", {}, "ops"), el("ul", { class: "values" }, (step ? step.ops : []).map(opItem)),
    el("h3", {}, "code"), stop > first ? listing(source.slice(first, stop), first) : el("p", { class: "quiet" }, "The module has no code for it."),
    functionsOf(source.slice(first, stop)), nativeStep(index), whole);
  find("kernel").scrollTop = 0;
}

function opItem(op) {
  const id = last.nodes[op], line = lines[last.lines[last.starts[op]]];
  return el("li", {}, id >= 0 ? el("button", { type: "button", class: "link", onclick: () => go({ tab: "graph", op: id, stage: stages.length - 1 }) }, nodes[id].kind) : "delete_var",
    " ", el("code", {}, line.code.trim()), sourceOf(line.source));
}

// The functions of the module that these lines call.
function functionsOf(body) {
  const text = body.filter((line) => !line.trimStart().startsWith("#")).join("\n");
  const called = data.code.functions.filter(([name]) => new RegExp(`\\b${name}[([]`).test(text));
  const source = data.code.source.split("\n");
  return called.map(([name, first, stop]) => [el("h3", {}, "calls ", el("code", {}, name)), listing(source.slice(first, stop), first)]);
}

function listing(source, first) {
  const indent = Math.min(...source.filter((line) => line.trim()).map((line) => line.length - line.trimStart().length));
  return el("pre", { class: "listing", style: { "--first": String(first) } }, source.map((line) => {
    const text = line.slice(Number.isFinite(indent) ? indent : 0);
    const comment = text.trimStart().startsWith("#");
    return el("span", {}, comment ? el("i", {}, text) : text, "\n");
  }));
}
