// Where the seconds went, and memory over time.

function phasesCard(run) {
  const modes = run.modes.filter((mode) => Object.keys(mode.phases).length);
  if (!modes.length) return null;
  const split = modes.map((mode) => ({ mode, parts: merged(mode.phases) }));
  const most = Math.max(...split.map(({ parts }) => parts.reduce((sum, [, value]) => sum + value, 0)), 1e-9);
  const kinds = ORDER.filter((kind) => split.some(({ parts }) => parts.some(([name]) => name === kind)));
  const bars = split.flatMap(({ mode, parts }) => {
    const spent = parts.filter(([kind]) => kind !== "saved").reduce((sum, [, value]) => sum + value, 0);
    return [
      el("span", {}, mode.name),
      el("div", { class: "bar", role: "img", "aria-label": `${mode.name}: ${parts.map(([kind, value]) => `${kind} ${seconds(value)}`).join(", ")}` },
        parts.map(([kind, value]) => el("i", {
          style: { width: `${(100 * value) / most}%`, background: kind === "saved"
            ? `repeating-linear-gradient(45deg, ${colour(kind)} 0 4px, transparent 4px 8px)` : colour(kind) },
          onpointermove: (event) => hint(event, `${kind}: ${seconds(value)}\n${KINDS[kind]}`),
          onpointerleave: (event) => hint(event, ""),
        }))),
      el("span", { class: "took" }, seconds(spent)),
    ];
  });
  const table = el("table", {},
    el("thead", {}, el("tr", {}, el("th", {}, "seconds of all rollouts"), modes.map((mode) => el("th", {}, mode.name)))),
    el("tbody", {}, kinds.map((kind) => el("tr", {}, el("td", { class: "wide" }, `${kind}: ${KINDS[kind]}`),
      split.map(({ parts }) => el("td", {}, seconds((parts.find(([name]) => name === kind) || [0, 0])[1])))))));
  const background = merged(run.modes[0].background || {});
  return el("section", { class: "card", id: "phases", "aria-label": "where the seconds went" },
    el("div", { class: "head" }, el("h2", {}, "Where the seconds went"),
      el("span", { class: "note" }, "seconds of all rollouts together; hatched: what hits did not spend")),
    el("div", { class: "bars" }, bars),
    el("div", { class: "legend" }, kinds.map((kind) => el("span", { title: KINDS[kind] }, el("i", { style: { background: colour(kind) } }), kind))),
    el("details", { open: split.length < 4 }, el("summary", {}, "as a table"), el("div", { class: "scroll" }, table)),
    background.length ? el("p", { class: "facts" }, "in the background, where no rollout waits: ",
      background.map(([kind, value]) => `${kind} ${seconds(value)}`).join(", ")) : null);
}

/** Phases in their order; the kinds that nobody has heard of are "other". */
function merged(phases) {
  const sums = new Map();
  for (const [kind, value] of Object.entries(phases)) {
    const name = known(kind);
    if (value > 0) sums.set(name, (sums.get(name) || 0) + value);
  }
  return ORDER.filter((kind) => kind !== "saved" && sums.has(kind)).map((kind) => [kind, sums.get(kind)])
    .concat(sums.has("saved") ? [["saved", sums.get("saved")]] : []);
}

const LINES = ["#27a36f", "#e8743b", "#8a5cd6", "#3b78e7", "#a0744c", "#d6569b"];

function memoryCard(run) {
  const modes = run.modes.filter((mode) => mode.memory.length > 1);
  if (!modes.length) return null;
  const [height, left, bottom, top] = [230, 62, 22, 10];
  const chart = el("div", { class: "chart" });
  const longest = Math.max(...modes.map((mode) => mode.memory[mode.memory.length - 1][0]), 1e-3);
  const most = Math.max(...modes.flatMap((mode) => [mode.peak || 0, ...mode.memory.map(([, pss, stores]) => pss + stores)]), 1) * 1.05;
  const draw = () => {
    const width = Math.max(320, chart.clientWidth);
    const x = (time) => left + ((width - left - 8) * time) / longest;
    const y = (size) => top + (height - top - bottom) * (1 - size / most);
    const grid = steps(most, 4).map((size) => [
      svg("line", { x1: left, x2: width - 8, y1: y(size), y2: y(size), stroke: "var(--line)" }),
      svg("text", { x: left - 6, y: y(size) + 4, "text-anchor": "end" }, bytes(size)),
    ]);
    const times = steps(longest, 6).map((time) => svg("text", { x: x(time), y: height - 6, "text-anchor": "middle" }, time ? seconds(time) : "0"));
    const curves = modes.map((mode, index) => svg("path", {
      d: mode.memory.map(([time, pss, stores], i) => `${i ? "L" : "M"}${x(time).toFixed(1)} ${y(pss + stores).toFixed(1)}`).join(""),
      fill: "none", stroke: LINES[index % LINES.length], "stroke-width": index ? 1.5 : 2.5, "vector-effect": "non-scaling-stroke",
    }));
    const area = svg("path", {
      d: `M${x(0)} ${y(0)}${modes[0].memory.map(([time, pss, stores]) => `L${x(time).toFixed(1)} ${y(pss + stores).toFixed(1)}`).join("")}L${x(modes[0].memory[modes[0].memory.length - 1][0]).toFixed(1)} ${y(0)}Z`,
      fill: LINES[0], opacity: 0.13,
    });
    const cursor = svg("line", { y1: top, y2: height - bottom, stroke: "var(--soft)", "stroke-dasharray": "3 3", visibility: "hidden" });
    const picture = svg("svg", {
      viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": modes.map((mode) => `${mode.name}: peak ${bytes(mode.peak)}`).join("; "),
      onpointermove: (event) => {
        const box = picture.getBoundingClientRect();
        const at = (((event.clientX - box.left) / box.width) * width - left) / (width - left - 8) * longest;
        cursor.setAttribute("visibility", at >= 0 ? "visible" : "hidden");
        cursor.setAttribute("x1", x(at));
        cursor.setAttribute("x2", x(at));
        hint(event, at < 0 ? "" : `${seconds(Math.max(0, at))}\n${modes.map((mode) => `${mode.name}: ${memoryAt(mode, at)}`).join("\n")}`);
      },
      onpointerleave: (event) => { cursor.setAttribute("visibility", "hidden"); hint(event, ""); },
    }, grid.flat(), times, area, curves.reverse(), cursor);
    chart.replaceChildren(picture);
  };
  new ResizeObserver(framed(draw)).observe(chart);
  const rows = modes.map((mode, index) => el("tr", {},
    el("td", {}, el("i", { class: "dot", style: { background: LINES[index % LINES.length] } }), mode.name),
    el("td", {}, bytes(mode.peak)), el("td", {}, index ? change(modes[0].peak, mode.peak) : ""),
    el("td", {}, `${bytes(mode.integral)}·s`), el("td", {}, index ? change(modes[0].integral, mode.integral) : ""),
    el("td", {}, seconds(mode.seconds)), el("td", {}, index ? change(modes[0].seconds, mode.seconds) : "")));
  return el("section", { class: "card", id: "memory", "aria-label": "memory over time" },
    el("div", { class: "head" }, el("h2", {}, "Memory over time"),
      el("span", { class: "note" }, "PSS of all processes, plus the page stores their forks share")),
    chart,
    el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ["", "peak", "ours", "over time", "ours", "took", "ours"].map((name) => el("th", {}, name)))),
      el("tbody", {}, rows))));
}

function memoryAt(mode, at) {
  const points = mode.memory;
  const ended = points[points.length - 1];
  if (at > ended[0]) return "over";
  const [, pss, stores] = points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
  return `${bytes(pss + stores)}${stores ? ` (${bytes(stores)} in stores)` : ""}`;
}

/** Round numbers from 0 to `most`, about `wanted` of them. */
function steps(most, wanted) {
  const rough = most / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}
