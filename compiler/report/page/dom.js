// Helpers: DOM elements, number formatting, colours.

// An element with attributes and children. Text is always text: nothing is parsed as HTML.
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) made.style.setProperty(key, v);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child != null && child !== ""));
  return made;
}

// Text in which `backquotes` mark code.
const prose = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));

const find = (id) => document.getElementById(id);

function fill(target, ...children) {
  target.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== ""));
}

function bytesText(bytes) {
  if (bytes == null) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; unit++; }
  const digits = unit === 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2;
  return `${bytes.toFixed(digits)} ${units[unit]}`;
}

const countText = (number) => number.toLocaleString("en");
const timeText = (ms) => (ms >= 100 ? ms.toFixed(0) : ms >= 10 ? ms.toFixed(1) : ms.toFixed(2)) + " ms";
const changeText = (before, after, text = countText) =>
  before === after ? text(after) : `${text(before)} → ${text(after)}`;
const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part / whole < 0.1 ? 1 : 0)} %` : "");

// A colour of the style sheet, for a canvas.
const colours = new Map();
function colour(name) {
  if (!colours.has(name)) {
    colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return colours.get(name);
}
const dark = matchMedia("(prefers-color-scheme: dark)");

// Resize a canvas to its box in device pixels; return its scaled context.
function prepare(canvas) {
  const ratio = devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// Debounce an action to once per animation frame.
function onceAFrame(action) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; action(); });
  };
}

const tip = {
  show(event, ...content) {
    const box = find("tip");
    fill(box, ...content);
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    const below = event.clientY + 18;
    box.style.top = `${below + height > innerHeight - 8 ? Math.max(4, event.clientY - height - 12) : below}px`;
  },
  hide() { find("tip").hidden = true; },
};
