// Who did what when: a lane a rollout, and one for each thread in the background.

const LANE = 18;
const NAMES = 190;

class Timeline {
  constructor(run, trees, select) {
    this.run = run;
    this.trees = trees;
    this.select = select;
    this.lanes = run.lanes;
    let end = 1;
    for (const lane of this.lanes) {
      for (const [, start, took] of lane.spans) end = Math.max(end, start + took);
    }
    this.canvas = el("canvas", {
      tabindex: 0, role: "img", "aria-label": `what each of ${several(this.lanes.length, "lane")} did when`,
      onclick: (event) => {
        const span = this.at(event);
        if (span && span.lane.task >= 0 && span.place > 0) this.select(span.lane.task, span.place);
      },
      onpointermove: (event) => hint(event, event.buttons ? "" : this.words(this.at(event))),
      onpointerleave: (event) => hint(event, ""),
      onkeydown: (event) => this.window.key(event),
    });
    this.space = el("div", { class: "space", style: { height: `${this.lanes.length * LANE + 24}px` } });
    this.pane = el("div", { class: "pane time", onscroll: framed(() => this.draw()) }, this.space, this.canvas);
    this.soon = framed(() => this.draw());
    this.window = new Window(0, end * 1.01, this.soon);
    this.window.listen(this.canvas, NAMES);
    new ResizeObserver(this.soon).observe(this.pane);
    redrawn.add(this.soon);
    const kinds = new Set(this.lanes.flatMap((lane) => lane.spans.map((span) => known(shade(span)))));
    this.card = el("section", { class: "card", id: "timeline", "aria-label": "timeline of the rollouts" },
      el("div", { class: "head" }, el("h2", {}, "Timeline"), this.window.buttons(),
        el("span", { class: "note" }, "drag, or Ctrl and the wheel; click a call to see it in the tree"),
        run.left_out ? el("span", { class: "note" }, `the ${several(run.left_out, "shortest or oldest event")} left out`) : null),
      this.pane,
      el("div", { class: "legend" }, ORDER.filter((kind) => kinds.has(kind)).map((kind) =>
        el("span", { title: KINDS[kind] }, el("i", { style: { background: colour(kind) } }), kind))));
    this.pane.style.height = `${Math.min(460, this.lanes.length * LANE + 26)}px`;
  }

  draw() {
    const [width, height] = [this.pane.clientWidth, this.pane.clientHeight];
    if (!width || !height) return;
    const context = sized(this.canvas, width, height);
    const scale = (width - NAMES) / (this.window.to - this.window.from);
    const x = (time) => NAMES + (time - this.window.from) * scale;
    this.axis(context, x, width, height);
    const first = Math.floor(this.pane.scrollTop / LANE);
    const last = Math.min(this.lanes.length, Math.ceil((this.pane.scrollTop + height - 22) / LANE));
    for (let i = first; i < last; i++) {
      const y = i * LANE - this.pane.scrollTop;
      context.save();
      context.beginPath();
      context.rect(NAMES, 0, width - NAMES, height - 22);
      context.clip();
      for (const span of this.lanes[i].spans) this.span(context, span, x, y, width);
      context.restore();
      if (i && this.lanes[i].task !== this.lanes[i - 1].task) { // another task, or the background
        context.fillStyle = painted("line");
        context.fillRect(0, y, width, 1);
      }
      context.fillStyle = painted("soft");
      context.textBaseline = "middle";
      context.font = "12px system-ui, sans-serif";
      context.fillText(clip(this.name(this.lanes[i]), NAMES - 16), 8, y + LANE / 2);
    }
  }

  span(context, span, x, y, width) {
    const [kind, start, took] = span;
    const left = x(start);
    const wide = took * (x(1) - x(0));
    if (left > width || left + wide < NAMES) return;
    context.fillStyle = painted(`k-${known(shade(span))}`);
    const whole = kind === "think" ? [LANE / 2 - 1, 2] : MOVES.has(kind) ? [2, LANE - 4] : [4, LANE - 8];
    context.fillRect(left, y + whole[0], Math.max(wide, kind === "think" ? 0 : 1.5), whole[1]);
  }

  axis(context, x, width, height) {
    context.fillStyle = painted("soft");
    context.strokeStyle = painted("faint");
    context.textBaseline = "alphabetic";
    context.font = "11px system-ui, sans-serif";
    const span = this.window.to - this.window.from;
    const step = steps(span, Math.max(2, width / 140))[1] || span;
    for (let time = Math.ceil(this.window.from / step) * step; time <= this.window.to; time += step) {
      context.beginPath();
      context.moveTo(x(time), 0);
      context.lineTo(x(time), height - 18);
      context.stroke();
      if (x(time) < width - 40) context.fillText(seconds(time / 1e6), x(time) + 3, height - 6);
    }
  }

  at(event) {
    const lane = this.lanes[Math.floor((event.offsetY + this.pane.scrollTop) / LANE)];
    const scale = (this.canvas.clientWidth - NAMES) / (this.window.to - this.window.from);
    if (!lane || event.offsetX < NAMES || event.offsetY > this.pane.clientHeight - 22) return null;
    const time = this.window.from + (event.offsetX - NAMES) / scale;
    const near = 2 / scale;
    const here = lane.spans.filter(([, start, took]) => time >= start - near && time <= start + took + near);
    const call = here.filter(([kind]) => kind === "call").pop();
    const inner = here.pop();
    return inner ? { lane, span: inner, call, place: (call || inner)[3] } : null;
  }

  /** A rollout's name without that of its task, where it has that in front. */
  name(lane) {
    const task = lane.task >= 0 ? `${this.run.tasks[lane.task].name}: ` : "";
    return line(task && lane.name.startsWith(task) ? lane.name.slice(task.length) : lane.name);
  }

  words(found) {
    if (!found) return "";
    const [kind, start, took, , note] = found.span;
    const node = found.lane.task >= 0 && found.place > 0 && (found.call || kind !== "think") ? this.trees[found.lane.task].nodes[found.place] : null;
    return [line(found.lane.name), `${kind}${note ? ` (${note})` : ""}: ${seconds(took / 1e6)}, at ${seconds(start / 1e6)}`, node ? node.title.slice(0, 200) : ""]
      .filter(Boolean).join("\n");
  }
}

// A rollout's own moves; what they are made of is drawn into them.
const MOVES = new Set(["open", "call", "judge"]);

/** What a span is coloured as: a call by how it was answered. */
function shade([kind, , , , note]) {
  if (kind === "call") return note === "run" ? "cache" : note;
  return MOVES.has(kind) ? "cache" : kind;
}
