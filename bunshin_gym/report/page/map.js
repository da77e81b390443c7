// The call tree as a map: a row a call from the top, as wide as the share of the rollouts that came through.

const CELL = 20;

class TreeMap {
  constructor(tree, select) {
    this.tree = tree;
    this.select = select;
    this.cells = [];
    this.lay();
    this.canvas = el("canvas", {
      tabindex: 0, role: "img", "aria-label": "map of the call tree; the outline has the same in words",
      onclick: (event) => { const node = this.at(event); if (node) this.choose(node, true); },
      ondblclick: (event) => { const node = this.at(event); if (node) this.window.show(node.x, node.x + node.width); },
      onpointermove: (event) => {
        const node = event.buttons ? null : this.at(event);
        hint(event, node ? `${node.title.slice(0, 300)}\n${several(node.rollouts, "rollout")}${node.index ? `; ${answered(node)}; ${seconds(node.seconds)}` : ""}` : "");
      },
      onpointerleave: (event) => hint(event, ""),
      onkeydown: (event) => this.key(event),
    });
    this.space = el("div", { class: "space", style: { height: `${(this.deepest + 1) * CELL}px` } });
    this.pane = el("div", { class: "pane", onscroll: framed(() => this.draw()) }, this.space, this.canvas);
    this.soon = framed(() => this.draw());
    this.window = new Window(0, Math.max(1, tree.root.width), this.soon);
    this.window.listen(this.canvas);
    new ResizeObserver(this.soon).observe(this.pane);
    redrawn.add(this.soon);
    this.tools = el("span", { class: "head", style: { margin: 0 } }, this.window.buttons(),
      el("span", { class: "note" }, "width: rollouts; green: answered without running; double click: zoom in"));
  }

  /** Where every branch is: those that end somewhere come after those that go on. */
  lay() {
    this.deepest = 0;
    for (let i = this.tree.nodes.length - 1; i >= 0; i--) {
      const node = this.tree.nodes[i];
      node.width = Math.max(node.rollouts, node.children.reduce((sum, child) => sum + child.width, 0), 1e-9);
      this.deepest = Math.max(this.deepest, node.depth);
    }
    this.tree.root.x = 0;
    this.levels = [];
    for (const node of this.tree.nodes) {
      (this.levels[node.depth] ||= []).push(node);
      let x = node.x;
      for (const child of node.children) {
        child.x = x;
        x += child.width;
      }
    }
  }

  draw() {
    const [width, height] = [this.pane.clientWidth, this.pane.clientHeight];
    if (!width || !height) return;
    const context = sized(this.canvas, width, height);
    const scale = width / (this.window.to - this.window.from);
    const from = Math.floor(this.pane.scrollTop / CELL);
    context.font = "12px ui-monospace, DejaVu Sans Mono, monospace";
    context.textBaseline = "middle";
    this.cells = [];
    for (let depth = from; depth <= Math.min(this.deepest, from + height / CELL + 1); depth++) {
      const y = depth * CELL - this.pane.scrollTop;
      let end = -1;
      for (const node of this.levels[depth]) {
        const left = (node.x - this.window.from) * scale;
        const wide = node.width * scale;
        if (left + wide < 0 || left > width || left + wide < end + 0.5) continue; // nothing that could be seen
        end = left + wide;
        this.cell(context, node, Math.max(left, -1), y, Math.min(left + wide, width + 1) - Math.max(left, -1));
      }
    }
  }

  cell(context, node, x, y, wide) {
    const shared = node.rollouts ? (node.hits + node.waits) / node.rollouts : 0;
    context.globalAlpha = node.index ? 0.45 + 0.5 * Math.min(1, node.rollouts / Math.max(1, this.tree.root.rollouts)) : 1;
    context.fillStyle = !node.index ? painted("line") : painted(shared > 0 ? "k-hit" : node.private ? "k-other" : node.drafts ? "k-draft" : "k-run");
    context.fillRect(x, y + 1, Math.max(0.7, wide - 1), CELL - 2);
    context.globalAlpha = 1;
    if (failed(node)) {
      context.fillStyle = painted("bad");
      context.fillRect(x, y + CELL - 4, Math.max(0.7, wide - 1), 3);
    }
    if (node === this.chosen) {
      context.strokeStyle = painted("ink");
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 2, Math.max(2, wide - 3), CELL - 4);
    }
    if (wide < 26) return;
    const mark = node.snapshots || node.snapshot ? "◆ " : "";
    context.fillStyle = painted("ink");
    context.fillText(clip(mark + node.title, wide - 8), x + 4, y + CELL / 2 + 1);
  }

  at(event) {
    const node = this.levels[Math.floor((event.offsetY + this.pane.scrollTop) / CELL)];
    const x = this.window.from + (event.offsetX / this.canvas.clientWidth) * (this.window.to - this.window.from);
    return node && node.find((one) => x >= one.x && x < one.x + one.width);
  }

  choose(node, tell = false) {
    this.chosen = node;
    const y = node.depth * CELL;
    if (y < this.pane.scrollTop || y + CELL > this.pane.scrollTop + this.pane.clientHeight) this.pane.scrollTop = y - this.pane.clientHeight / 2;
    if (node.x + node.width <= this.window.from || node.x >= this.window.to) this.window.show(node.x - this.window.to + this.window.from, node.x);
    this.soon();
    if (tell) this.select(node);
  }

  key(event) {
    const node = this.chosen || this.tree.root;
    const above = this.tree.nodes[node.up];
    const beside = (by) => above && above.children[above.children.indexOf(node) + by];
    const to = event.shiftKey
      ? { ArrowUp: above, ArrowDown: node.children[0], ArrowLeft: beside(-1), ArrowRight: beside(1) }[event.key] : null;
    if (to) this.choose(to, true);
    else if (!this.window.key(event)) return;
    event.preventDefault();
  }
}

/** About as much of a text in a fixed font as fits. */
function clip(text, pixels) {
  const fits = Math.floor(pixels / 7.3);
  return text.length <= fits ? text : fits < 2 ? "" : `${text.slice(0, fits - 1)}…`;
}
