// What every part of the page uses. Text of calls is hostile: it goes in as text, with what would not show spelled out.

const data = JSON.parse(document.getElementById("data").textContent);

const SVG = "http://www.w3.org/2000/svg";

/** An element: attributes by name, `on…` for listeners, `style` as an object; children are elements or text. */
function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

// Controls, direction marks and other format characters, lone surrogates, private use; all but tab and newline.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffc\ufffe\uffff\ud800-\udfff\ue000-\uf8ff\u{e0001}\u{e0020}-\u{e007f}]/gu;
const COLOURS = /\u001b\[[0-9;:]*m/g;

function spelled(character) {
  const code = character.codePointAt(0);
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
}

/** One line, in which nothing is hidden. */
function line(text) {
  return text.replace(COLOURS, "").replace(/\s+/g, " ").trim().replace(UNSEEN, spelled);
}

/** Text as it is, but for colour codes; what would not show is marked. */
function shown(text) {
  const whole = text.replace(COLOURS, "").replace(/\r\n/g, "\n");
  const parts = [];
  let from = 0;
  for (const found of whole.matchAll(UNSEEN)) {
    parts.push(whole.slice(from, found.index), el("span", { class: "unseen" }, spelled(found[0])));
    from = found.index + found[0].length;
    if (parts.length > 4000) break;
  }
  parts.push(whole.slice(from).replace(UNSEEN, spelled));
  return parts;
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 0.9995) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  if (value < 7200) return `${(value / 60).toFixed(1)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

function bytes(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e9) return `${(value / 1e9).toFixed(2)} GB`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(value >= 1e8 ? 0 : 1)} MB`;
  return `${Math.round(value / 1e3)} kB`;
}

function count(value) {
  return value.toLocaleString("en");
}

function percent(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : "–";
}

/** −44 %, of ours against theirs. */
function change(ours, theirs) {
  if (!theirs) return "–";
  const value = Math.round(100 * (ours / theirs - 1));
  return `${value > 0 ? "+" : value < 0 ? "−" : "±"}${Math.abs(value)} %`;
}

function several(number, noun, nouns = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : nouns}`;
}

// What a span, or a part of a bar, can be: its colour's name, and what it means.
const KINDS = {
  saved: "calls answered without running: what they would have taken",
  hit: "answered from the tree",
  wait: "waited for a sibling that ran the same",
  draft: "run ahead of time",
  adopt: "a draft taken over",
  squash: "a draft thrown away",
  run: "running calls",
  replay: "replaying calls that were skipped",
  fork: "forking workspaces",
  snapshot: "taking snapshots",
  prepare: "preparing workspaces",
  digest: "digests of the state",
  verify: "verifiers",
  audit: "checking hits by running them again",
  budget: "waiting for memory",
  park: "parking idle workspaces",
  wake: "waking them",
  evict: "a snapshot let go of",
  cache: "the cache itself, and waiting in line",
  think: "the policy thinks",
  failed: "a call that failed",
  other: "other",
};
const ORDER = Object.keys(KINDS);

function known(kind) {
  return kind in KINDS ? kind : "other";
}

/** The colour of a kind as the style sheet has it now. */
function colour(kind) {
  return `var(--k-${known(kind)})`;
}

const palette = new Map();
function painted(name) {
  if (!palette.has(name)) palette.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return palette.get(name);
}

/** Redraw what is painted on a canvas when light turns to dark. */
const redrawn = new Set();
function repaint() {
  palette.clear();
  for (const draw of redrawn) draw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

/** The little box beside the pointer. */
const tip = el("div", { class: "tip", role: "status", hidden: true });
function hint(event, text) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8)}px`;
}

/** A canvas that stays in view while its pane scrolls, sharp on every screen. Returns its context, sized. */
function sized(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** `draw`, at most once a frame. */
function framed(draw) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
}

/** A part of a range of numbers that is looked at: zoomed and moved by pointer, wheel and keys. */
class Window {
  constructor(low, high, changed) {
    Object.assign(this, { low, high, from: low, to: high, changed });
  }

  get whole() {
    return this.from <= this.low && this.to >= this.high;
  }

  show(from, to) {
    const least = (this.high - this.low) / 1e5 || 1e-9;
    const width = Math.min(Math.max(to - from, least), this.high - this.low);
    this.from = Math.min(Math.max(from, this.low), this.high - width);
    this.to = this.from + width;
    this.changed();
  }

  zoom(factor, at = 0.5) {
    const middle = this.from + (this.to - this.from) * at;
    this.show(middle - (middle - this.from) / factor, middle + (this.to - middle) / factor);
  }

  move(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }

  all() {
    this.show(this.low, this.high);
  }

  /** Listen to a canvas of which `left` pixels are no part of the range. */
  listen(canvas, left = 0) {
    const share = (event) => (event.offsetX - left) / Math.max(1, canvas.clientWidth - left);
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      if (event.shiftKey) this.move(Math.sign(event.deltaX || event.deltaY) * 0.1);
      else this.zoom(event.deltaY < 0 ? 1.25 : 0.8, share(event));
    }, { passive: false });
    let grabbed = null;
    canvas.addEventListener("pointerdown", (event) => {
      grabbed = event.button === 0 ? { at: share(event), from: this.from, to: this.to, moved: false } : null;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!grabbed || !(event.buttons & 1)) return;
      const by = (share(event) - grabbed.at) * (grabbed.to - grabbed.from);
      if (!grabbed.moved && Math.abs(share(event) - grabbed.at) * canvas.clientWidth < 4) return;
      if (!grabbed.moved) canvas.setPointerCapture(event.pointerId);
      grabbed.moved = true;
      this.show(grabbed.from - by, grabbed.to - by);
    });
    // A drag is no click.
    canvas.addEventListener("click", (event) => {
      if (grabbed && grabbed.moved) event.stopImmediatePropagation();
      grabbed = null;
    }, true);
  }

  /** What a key does; whether it did anything. */
  key(event) {
    const does = {
      ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), "+": () => this.zoom(1.5),
      "=": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5), 0: () => this.all(),
    }[event.key];
    if (!does || event.ctrlKey || event.metaKey || event.altKey) return false;
    does();
    event.preventDefault();
    return true;
  }

  buttons() {
    return el("span", { class: "group" },
      el("button", { type: "button", title: "zoom out (−)", "aria-label": "zoom out", onclick: () => this.zoom(1 / 1.5) }, "−"),
      el("button", { type: "button", title: "zoom in (+, or Ctrl and the wheel)", "aria-label": "zoom in", onclick: () => this.zoom(1.5) }, "+"),
      el("button", { type: "button", title: "everything (0)", onclick: () => this.all() }, "all"));
  }
}
