// The page: a run at a time, and of it a task at a time.

let current = { run: 0, task: 0 };

function summary(run) {
  const [ours, ...others] = run.modes;
  const stats = ours ? ours.stats : {};
  const calls = stats.calls || 0;
  const shared = (stats.hits || 0) + (stats.waits || 0);
  const worst = others.filter((mode) => mode.peak)[others.length - 1];
  const tiles = [
    [`${percent(shared, calls)}`, `of ${several(calls, "call")} answered without running`],
    [seconds(stats.saved_seconds || 0), "of tools not spent again"],
    [count(stats.forks || 0), `forks; ${several(stats.snapshots || 0, "snapshot")}, ${stats.prepared || 0} prepared`],
    [seconds(ours ? ours.seconds : 0), others.length ? `took; ${others.map((mode) => `${change(ours.seconds, mode.seconds)} against ${mode.name}`).join(", ")}` : "took, from the first thought to the last verdict"],
    ours && ours.peak ? [bytes(ours.peak), worst ? `peak memory, ${change(ours.peak, worst.peak)} against ${worst.name}` : "peak memory"] : null,
    ours && ours.solved !== null ? [`${ours.solved}/${run.tasks.reduce((sum, task) => sum + task.rollouts.length, 0)}`, "rollouts solved it"] : null,
    stats.drafts ? [count(stats.drafts), "calls run ahead, and taken"] : null,
    stats.audits ? [`${stats.false_hits}`, `false hits in ${several(stats.audits, "audit")}`] : null,
  ];
  return el("div", { class: "tiles" }, tiles.filter(Boolean).map(([value, words]) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, words))));
}

function runsCard() {
  if (data.runs.length < 2) return null;
  return el("section", { class: "card", "aria-label": "runs" }, el("div", { class: "scroll" }, el("table", { id: "runs" },
    el("thead", {}, el("tr", {}, ["run", "rollouts", "solved", "calls", "answered without running", "forks", "not spent", "took"].map((name) => el("th", {}, name)))),
    el("tbody", {}, data.runs.map((run, index) => {
      const ours = run.modes[0] || { stats: {}, seconds: 0, solved: null };
      const shared = (ours.stats.hits || 0) + (ours.stats.waits || 0);
      return el("tr", { class: "pick", "aria-current": String(index === current.run), onclick: () => show(index, 0) },
        el("td", {}, el("button", { type: "button", class: "link" }, line(run.name))),
        el("td", {}, count(run.tasks.reduce((sum, task) => sum + task.rollouts.length, 0))),
        el("td", {}, ours.solved === null ? "–" : ours.solved), el("td", {}, count(ours.stats.calls || 0)),
        el("td", {}, percent(shared, ours.stats.calls || 0)), el("td", {}, count(ours.stats.forks || 0)),
        el("td", {}, seconds(ours.stats.saved_seconds || 0)), el("td", {}, seconds(ours.seconds)));
    })))));
}

function treeCard(run, trees) {
  const tree = trees[current.task];
  if (!tree) return null;
  const detail = new Detail(tree, (node) => outline.choose(node));
  const outline = new Outline(tree, (node) => { detail.show(node); map.choose(node); });
  const map = new TreeMap(tree, (node) => outline.choose(node));
  const views = { outline, map };
  const looks = Object.keys(views).map((name) => el("button", { type: "button", "aria-pressed": String(name === "outline"), onclick: () => look(name) }, name));
  const look = (chosen) => {
    for (const button of looks) button.setAttribute("aria-pressed", String(button.textContent === chosen));
    for (const [name, view] of Object.entries(views)) {
      view.pane.hidden = name !== chosen;
      if (name === "map") view.tools.hidden = name !== chosen;
    }
    views[chosen].draw();
  };
  const tasks = run.tasks.length > 1 ? el("select", { "aria-label": "task", onchange: (event) => show(current.run, Number(event.target.value)) },
    run.tasks.map((task, index) => el("option", { value: index, selected: index === current.task }, line(task.name)))) : null;
  current.outline = outline;
  const card = el("section", { class: "card", id: "tree", "aria-label": "call tree" },
    el("div", { class: "head" }, el("h2", {}, "Call tree"), tasks, el("span", { class: "group" }, looks), outline.tools, map.tools,
      el("span", { class: "spring" }), el("span", { class: "note" }, `${several(tree.nodes.length - 1, "different call")}, ${several(tree.root.rollouts, "rollout")}`)),
    el("div", { class: "split" }, el("div", { style: { minWidth: 0 } }, outline.pane, map.pane), detail.pane),
    el("div", { class: "legend" }, ["run", "draft", "wait", "hit"].map((kind) => el("span", {}, el("i", { style: { background: colour(kind) } }), `${kind}: ${KINDS[kind]}`))));
  look("outline");
  return card;
}

function show(run, task) {
  current = { run, task };
  redrawn.clear();
  const chosen = data.runs[run];
  if (!chosen) {
    document.getElementById("main").replaceChildren(el("p", { class: "empty" }, "There is nothing in this report."));
    return;
  }
  const trees = chosen.tasks.map((one) => new Tree(one));
  const select = (index, place) => {
    if (index !== current.task) show(run, index);
    current.outline.choose(current.outline.tree.nodes[place]);
    document.getElementById("tree").scrollIntoView({ block: "nearest" });
  };
  const charts = [phasesCard(chosen), memoryCard(chosen)].filter(Boolean);
  document.getElementById("main").replaceChildren(...[
    runsCard(),
    data.runs.length > 1 || chosen.about ? el("p", { class: "facts" }, el("b", {}, line(chosen.name)), chosen.about ? `: ${line(chosen.about)}` : "") : null,
    summary(chosen),
    charts.length > 1 ? el("div", { class: "two" }, charts) : charts[0],
    treeCard(chosen, trees),
    chosen.lanes.length ? new Timeline(chosen, trees, select).card : null,
  ].filter(Boolean));
}

function header() {
  const root = document.documentElement;
  const themes = ["light", "dark"];
  const button = el("button", { type: "button", "aria-label": "light or dark", title: "light or dark", onclick: () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = themes[dark ? 0 : 1];
    repaint();
  } }, "◐");
  const facts = [data.made, `bunshin_gym ${data.version}`, ...data.facts].map(line).join(" · ");
  document.getElementById("top").replaceChildren(el("h1", {}, line(data.title)), el("span", { class: "facts" }, facts), button);
  document.body.append(tip);
}

document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "/" && !typing && current.outline) {
    event.preventDefault();
    current.outline.search.focus();
    current.outline.search.select();
  }
});

header();
show(0, 0);
