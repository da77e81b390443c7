// A task's call tree: the branches of the report with what follows from them.

class Tree {
  constructor(task) {
    this.task = task;
    this.nodes = task.branches.map((branch, index) => ({
      call: "", tool: "", exit_code: null, exit_reason: "", seconds: 0, output: "", size: 0, private: false, back: false,
      state: "", verdict: null, snapshot: false, snapshots: 0, forks: 0, begun: 0, rollouts: 0, run: 0, drafts: 0, hits: 0,
      waits: 0, ends: [], up: -1, ...branch, index, children: [], depth: 0, indent: 0, open: true,
    }));
    const states = new Map();
    for (const node of this.nodes) {
      const above = this.nodes[node.up];
      if (above && node !== above) {
        above.children.push(node);
        node.depth = above.depth + 1;
      }
      node.title = line(node.call) || (node.index ? "(nothing)" : task.name);
      if (node.state) {
        if (!states.has(node.state)) states.set(node.state, []);
        states.get(node.state).push(node);
      }
    }
    this.states = states;
    this.root = this.nodes[0];
    // A chain that nobody leaves runs straight down; only a parting indents.
    for (const node of this.nodes) {
      for (const child of node.children) {
        const alone = node.children.length === 1 && !node.ends.length;
        child.indent = node.indent + (alone || node === this.root && node.children.length === 1 ? 0 : 1);
      }
    }
    // Every branch comes before those below it.
    for (let i = this.nodes.length - 1; i >= 0; i--) {
      const node = this.nodes[i];
      node.below = 1 + node.children.reduce((sum, child) => sum + child.below, 0);
      node.last = node.index + node.below - 1;
    }
    this.rewards = new Map(task.rollouts.map((rollout) => [rollout.name, rollout]));
  }

  /** The branches in sight, in order: those with no closed one above them. */
  rows() {
    const rows = [];
    for (let i = 0; i < this.nodes.length; i++) {
      rows.push(this.nodes[i]);
      if (!this.nodes[i].open) i = this.nodes[i].last;
    }
    return rows;
  }

  openAll(open) {
    for (const node of this.nodes) node.open = open || node === this.root;
  }

  /** Open everything above a branch. */
  reveal(node) {
    for (let above = this.nodes[node.up]; above; above = this.nodes[above.up]) above.open = true;
  }

  /** The rollouts that came through a branch. */
  through(node) {
    const names = [];
    for (let i = node.index; i <= node.last; i++) names.push(...this.nodes[i].ends);
    return names;
  }

  /** Branches whose call (or result) holds the words, in order. */
  find(words, results) {
    const wanted = words.toLowerCase();
    return this.nodes.filter((node) => node.index &&
      (node.call.toLowerCase().includes(wanted) || (results && node.output.toLowerCase().includes(wanted))));
  }
}

/** How those that came through a branch were answered, as parts of one bar. */
function mix(node) {
  const parts = [["run", node.run], ["draft", node.drafts], ["wait", node.waits], ["hit", node.hits]];
  return parts.filter(([, number]) => number).map(([kind, number]) =>
    el("i", { style: { width: `${(100 * number) / Math.max(1, node.rollouts)}%`, background: colour(kind) } }));
}

function answered(node) {
  const words = [];
  if (node.run) words.push(`run ${several(node.run, "time")}`);
  if (node.drafts) words.push(`${node.drafts} run ahead`);
  if (node.hits) words.push(several(node.hits, "hit"));
  if (node.waits) words.push(`${node.waits} waited for a sibling`);
  return words.join(", ");
}

function failed(node) {
  return Boolean(node.exit_reason || node.exit_code);
}

function ending(node) {
  return node.exit_reason ? node.exit_reason.replace(/_/g, " ") : `exit ${node.exit_code}`;
}
