// The call tree as an outline: only the rows in sight are in the document. Search, folding, keys.

const ROW = 26;
const DEEPEST = 24; // rails that are drawn: what is deeper is not pushed out of the pane

class Outline {
  constructor(tree, select) {
    this.tree = tree;
    this.select = select;
    this.found = [];
    this.marked = new Set();
    this.rows = el("div", { class: "rows" });
    this.pane = el("div", {
      class: "pane", role: "tree", tabindex: 0, "aria-label": `call tree of ${line(tree.task.name)}`,
      onscroll: framed(() => this.draw()), onkeydown: (event) => this.key(event),
    }, this.rows);
    new ResizeObserver(framed(() => this.draw())).observe(this.pane);
    this.search = el("input", {
      type: "search", placeholder: "search calls  ( / )", "aria-label": "search calls", spellcheck: "false",
      oninput: framed(() => this.look()),
      onkeydown: (event) => {
        if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1);
        if (event.key === "ArrowDown") this.pane.focus();
      },
    });
    this.inResults = el("input", { type: "checkbox", onchange: () => this.look() });
    this.status = el("span", { class: "note", role: "status" });
    this.tools = el("span", { class: "head", style: { margin: 0 } },
      this.search,
      el("span", { class: "group" },
        el("button", { type: "button", "aria-label": "previous match", title: "previous (Shift and Enter)", onclick: () => this.next(-1) }, "↑"),
        el("button", { type: "button", "aria-label": "next match", title: "next (Enter)", onclick: () => this.next(1) }, "↓")),
      el("label", {}, this.inResults, "in results, too"), this.status,
      el("span", { class: "group" },
        el("button", { type: "button", onclick: () => this.fold(true) }, "expand all"),
        el("button", { type: "button", onclick: () => this.fold(false) }, "collapse all")));
    this.update();
  }

  fold(open) {
    this.tree.openAll(open);
    this.update();
  }

  /** The rows have changed. */
  update() {
    this.list = this.tree.rows();
    this.place = new Map(this.list.map((node, row) => [node, row]));
    this.rows.style.height = `${this.list.length * ROW}px`;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.pane.scrollTop / ROW) - 6);
    const last = Math.min(this.list.length, Math.ceil((this.pane.scrollTop + this.pane.clientHeight) / ROW) + 6);
    const rows = [];
    for (let i = first; i < last; i++) rows.push(this.row(this.list[i], i));
    this.rows.replaceChildren(...rows);
    const chosen = this.chosen && this.place.has(this.chosen) ? `row-${this.chosen.index}` : null;
    if (chosen && rows.some((row) => row.id === chosen)) this.pane.setAttribute("aria-activedescendant", chosen);
    else this.pane.removeAttribute("aria-activedescendant");
  }

  row(node, place) {
    const siblings = node.up >= 0 && node.index ? this.tree.nodes[node.up].children : [node];
    const ends = node.ends.map((name) => this.tree.rewards.get(name)).filter(Boolean);
    const solved = ends.filter((end) => end.reward === 1).length;
    const judged = ends.some((end) => end.reward !== null);
    return el("div", {
      class: `row${this.marked.has(node) ? " hit-by-search" : ""}`, id: `row-${node.index}`, role: "treeitem",
      "aria-level": node.depth + 1, "aria-setsize": siblings.length, "aria-posinset": siblings.indexOf(node) + 1,
      "aria-expanded": node.children.length ? String(node.open) : null, "aria-selected": String(node === this.chosen),
      style: { top: `${place * ROW}px` },
      onclick: (event) => (event.target.className === "fold" ? this.toggle(node) : this.choose(node)),
      ondblclick: () => this.toggle(node),
    },
    el("span", { class: "rails", style: { width: `${Math.min(node.indent, DEEPEST) * 16}px` } }),
    node.indent > DEEPEST ? el("span", { class: "chip", title: "deeper than is drawn" }, `+${node.indent - DEEPEST}`) : null,
    el("span", { class: "fold", "aria-hidden": "true" }, node.children.length ? (node.open ? "▾" : "▸") : ""),
    el("span", { class: "count", title: several(node.rollouts, "rollout") }, `${node.rollouts}×`),
    node.index ? el("span", { class: "mix", title: answered(node) }, mix(node)) : null,
    el("code", {}, node.title.slice(0, 400)),
    failed(node) ? el("span", { class: "chip bad" }, ending(node)) : null,
    node.snapshots || node.snapshot ? el("span", { class: "chip snap", title: "a snapshot was taken here" }, "◆ snapshot") : null,
    node.forks ? el("span", { class: "chip fork", title: "workspaces forked from it" }, several(node.forks, "fork")) : null,
    node.private ? el("span", { class: "chip", title: "depends on more than the state: shared with nobody" }, "private") : null,
    ends.length ? el("span", { class: `chip${judged ? (solved ? " good" : " bad") : ""}`, title: "rollouts that end here" },
      judged ? `${solved}/${ends.length} solved` : several(ends.length, "end")) : null,
    !node.open ? el("span", { class: "chip" }, `${count(node.below - 1)} below`) : null,
    el("span", { class: "took" }, node.index ? seconds(node.seconds) : ""));
  }

  choose(node) {
    this.chosen = node;
    this.tree.reveal(node);
    if (!this.place.has(node)) this.update();
    this.keepInSight(node);
    this.draw();
    this.select(node);
  }

  keepInSight(node) {
    const top = this.place.get(node) * ROW;
    const [from, height] = [this.pane.scrollTop, this.pane.clientHeight];
    if (top < from) this.pane.scrollTop = Math.max(0, top - ROW);
    else if (top + ROW > from + height) this.pane.scrollTop = top + 2 * ROW - height;
  }

  toggle(node) {
    if (!node.children.length) return;
    node.open = !node.open;
    this.update();
  }

  key(event) {
    const at = this.place.get(this.chosen) ?? -1;
    const page = Math.max(1, Math.floor(this.pane.clientHeight / ROW) - 1);
    const node = this.chosen;
    const to = {
      ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: this.list.length - 1,
    }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (to !== undefined) this.choose(this.list[Math.min(Math.max(to, 0), this.list.length - 1)]);
    else if (event.key === "ArrowRight" && node && node.children.length) node.open ? this.choose(node.children[0]) : this.toggle(node);
    else if (event.key === "ArrowLeft" && node) node.open && node.children.length ? this.toggle(node) : node.index && this.choose(this.tree.nodes[node.up]);
    else if ((event.key === "Enter" || event.key === " ") && node) this.toggle(node);
    else return;
    event.preventDefault();
  }

  look() {
    const words = this.search.value;
    this.found = words.trim() ? this.tree.find(words, this.inResults.checked) : [];
    this.marked = new Set(this.found);
    this.at = -1;
    this.tell();
    if (this.found.length) this.next(1);
    else this.draw();
  }

  next(by) {
    if (!this.found.length) return;
    this.at = (this.at + by + this.found.length) % this.found.length;
    this.tell();
    this.choose(this.found[this.at]);
  }

  tell() {
    this.status.textContent = !this.search.value.trim() ? "" : this.found.length ? `${this.at + 1} of ${count(this.found.length)}` : "no match";
  }
}
