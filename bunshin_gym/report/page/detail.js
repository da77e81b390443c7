// What is known of one call, beside the tree.

class Detail {
  constructor(tree, choose) {
    this.tree = tree;
    this.choose = choose;
    this.pane = el("div", { class: "pane detail", role: "region", "aria-label": "the chosen call", tabindex: 0 });
    this.show(null);
  }

  show(node) {
    this.pane.scrollTop = 0;
    this.pane.replaceChildren(...(node ? (node.index ? this.call(node) : this.task(node)) : [this.costliest()]));
  }

  call(node) {
    const saved = (node.hits + node.waits) * node.seconds;
    const alike = node.state ? this.tree.states.get(node.state).filter((other) => other !== node) : [];
    const above = this.tree.nodes[node.up];
    return [
      el("div", { class: "head", style: { margin: 0 } },
        el("h2", {}, node.tool || "call"),
        failed(node) ? el("span", { class: "chip bad" }, ending(node)) : el("span", { class: "chip good" }, "exit 0"),
        node.private ? el("span", { class: "chip" }, "private") : null,
        el("span", { class: "spring" }),
        el("button", { type: "button", title: "what came before", onclick: () => this.choose(above) }, "↑ before")),
      el("pre", { "data-part": "call" }, shown(node.call)),
      el("dl", { class: "sheet" }, [
        ["rollouts", `${several(node.rollouts, "rollout")} came here`],
        ["answered", el("span", {}, el("span", { class: "mixbar" }, mix(node)), ` ${answered(node) || "–"}`)],
        ["took", `${seconds(node.seconds)} where it ran`],
        saved ? ["not spent", seconds(saved)] : null,
        node.snapshots || node.snapshot ? ["snapshot", node.snapshot ? "taken here, and kept to the end" : "taken here"] : null,
        node.forks ? ["forks", several(node.forks, "workspace") + " forked from here"] : null,
        node.begun ? ["drafts", `${several(node.begun, "next call")} run ahead from here`] : null,
        ["state", node.back ? "the call changed nothing" : node.state ? `${node.state}…` : "not compared with others"],
        node.verdict !== null ? ["verdict", String(node.verdict)] : null,
      ].filter(Boolean).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
      el("h3", {}, node.size > node.output.length ? `result (${count(node.size)} characters, cut)` : "result"),
      el("pre", { "data-part": "result" }, node.output ? shown(node.output) : el("span", { class: "facts" }, "(nothing)")),
      ...this.same(alike),
      ...this.ends(node),
    ];
  }

  task(node) {
    return [el("h2", {}, line(node.call)), el("p", { class: "facts" }, `${several(node.rollouts, "rollout")}, ${several(node.below - 1, "different call")}`),
      ...this.ends(node), this.costliest()];
  }

  same(alike) {
    if (!alike.length) return [];
    return [el("h3", {}, `the same state is reached by ${several(alike.length, "other call")}`), this.links(alike)];
  }

  links(nodes) {
    return el("div", {}, nodes.slice(0, 12).map((other) => el("div", {}, el("button", {
      type: "button", class: "link", onclick: () => this.choose(other),
    }, `${other.index ? other.title.slice(0, 90) : "the start"}`))),
    nodes.length > 12 ? el("p", { class: "facts" }, `and ${nodes.length - 12} more`) : null);
  }

  ends(node) {
    const names = this.tree.through(node);
    if (!names.length) return [];
    const rows = names.slice(0, 100).map((name) => {
      const rollout = this.tree.rewards.get(name) || { reward: null, seconds: null, failure: "" };
      return el("tr", {}, el("td", { class: "wide" }, line(name), rollout.failure ? el("div", { class: "facts" }, line(rollout.failure)) : null),
        el("td", {}, rollout.reward === null ? "" : String(rollout.reward)), el("td", {}, seconds(rollout.seconds)));
    });
    return [el("h3", {}, "rollouts that came here"),
      el("table", {}, el("thead", {}, el("tr", {}, ["", "reward", "took"].map((name) => el("th", {}, name)))), el("tbody", {}, rows)),
      names.length > 100 ? el("p", { class: "facts" }, `and ${count(names.length - 100)} more`) : null].filter(Boolean);
  }

  /** What there is to see before anything is chosen. */
  costliest() {
    const worth = (node) => node.seconds * Math.max(1, node.run + node.drafts);
    const nodes = this.tree.nodes.slice(1).sort((a, b) => worth(b) - worth(a)).slice(0, 12);
    return el("div", {},
      el("h3", {}, "the calls that took longest"),
      el("table", {}, el("thead", {}, el("tr", {}, ["", "run", "took each", "not spent"].map((name) => el("th", {}, name)))),
        el("tbody", {}, nodes.map((node) => el("tr", { class: "pick", onclick: () => this.choose(node) },
          el("td", { class: "wide" }, el("button", { type: "button", class: "link" }, node.title.slice(0, 120))),
          el("td", {}, String(node.run + node.drafts)), el("td", {}, seconds(node.seconds)),
          el("td", {}, seconds((node.hits + node.waits) * node.seconds)))))),
      el("p", { class: "facts" }, "choose a call to see what it gave: click, or go through the tree with the arrow keys"));
  }
}
