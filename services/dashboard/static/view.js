"use strict";
// What the page and a report share: a run and curves as elements. All text is set as text.

const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#7a52c7", "#888888"];

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((each) => each !== null));
  return made;
}

const percent = (share) => `${Math.round(100 * share)} %`;

function boxOf(box) {
  const waits = Object.entries(box.waits).filter(([, share]) => share >= 0.005);
  const item = element(
    "li", box.slowest ? { class: "slowest" } : {},
    element("h3", {}, box.role + (box.processes === null ? "" : ` × ${box.processes}`)),
    box.slowest ? element("p", { class: "slow" }, "slowest part") : null,
    ...box.rates.map((words) => element("p", {}, words)),
    box.working === null ? null : element("p", {}, `works ${percent(box.working)}`),
    ...waits.map(([label, share]) => element("p", {}, `waits ${percent(share)} for ${label}`)),
    box.restarts ? element("p", { class: "warning" }, `${box.restarts} restarts`) : null,
  );
  return item;
}

function queueOf(name, fill) {
  const meter = element("meter", { min: 0, max: 1, value: fill, "aria-label": name });
  return element("li", {}, element("h3", {}, name), element("p", {}, `${percent(fill)} full`), meter);
}

function flowOf(flow) {
  const list = element("ol", { class: "flow", "aria-label": "flow of the data" });
  for (const box of flow.boxes) {
    const queue = flow.queue_before[box.role];
    if (queue !== undefined) list.append(queueOf(queue, flow.queues[queue]));
    list.append(boxOf(box));
  }
  return element(
    "section", {}, element("h3", {}, "Flow of the data"), list,
    flow.lag === null ? null : element("p", {}, `lag ${flow.lag} versions`),
    element("p", { class: "advice" }, `Bottleneck: ${flow.advice}`),
  );
}

function smoothed(values, points) {
  if (points <= 1) return values;
  const half = Math.floor(points / 2);
  return values.map((value, i) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter((each) => each !== null);
    return near.reduce((sum, each) => sum + each, 0) / near.length;
  });
}

// Draws series [{label, x, y, low, high}] as one chart.
function chart(title, axis, series) {
  const holder = element("div", { class: "chart" });
  const root = element("section", {}, element("h3", {}, title), holder);
  const places = [...new Set(series.flatMap((each) => each.x))].filter((x) => x !== null).sort((a, b) => a - b);
  const at = new Map(places.map((x, i) => [x, i]));
  const columns = [places];
  const shown = [{ label: axis }];
  const bands = [];
  const add = (each, values, style) => {
    const column = new Array(places.length).fill(undefined); // undefined: the line goes on
    each.x.forEach((x, i) => { if (x !== null && values[i] !== null) column[at.get(x)] = values[i]; });
    columns.push(column);
    shown.push(style);
    return columns.length - 1;
  };
  series.forEach((each, i) => {
    const stroke = COLOURS[i % COLOURS.length];
    add(each, each.y, { label: each.label, stroke, width: 1.5, spanGaps: true });
    if (each.low) {
      const edge = { label: `${each.label}, band`, stroke: `${stroke}55`, width: 1, spanGaps: true };
      const high = add(each, each.high, edge), low = add(each, each.low, edge);
      bands.push({ series: [high, low], fill: `${stroke}33` });
    }
  });
  const colour = getComputedStyle(document.body).color;
  const axes = [0, 1].map(() => ({ stroke: colour, grid: { stroke: "#88888844" }, ticks: { stroke: "#88888888" } }));
  requestAnimationFrame(() => {
    const width = Math.max(200, holder.clientWidth);
    new uPlot({ width, height: 220, series: shown, bands, axes, scales: { x: { time: false } } }, columns, holder);
  });
  return root;
}

function chartsOf(run, curves, axis, axisWords, points) {
  const holder = element("div", { class: "charts" });
  for (const [title, names] of Object.entries(run.charts)) {
    const series = names.filter((name) => curves[name]).map((name) => (
      { label: name, x: curves[axis] || [], y: smoothed(curves[name], points) }
    ));
    if (series.length) holder.append(chart(title, axisWords, series));
  }
  return holder;
}

function textsOf(title, lines) {
  if (!lines.length) return null;
  return element("details", {}, element("summary", {}, title), element("pre", { tabindex: 0 }, lines.join("\n")));
}

function runOf(run, curves, logs, axis, axisWords, points) {
  const figures = element("dl");
  for (const [name, words] of Object.entries(run.figures)) {
    figures.append(element("div", {}, element("dt", {}, name), element("dd", {}, words)));
  }
  return element(
    "div", {},
    element("p", {}, `${run.state}; ${run.progress.label}`),
    ...run.warnings.map((words) => element("p", { class: "warning" }, words)),
    figures,
    flowOf(run.flow),
    run.dropped ? element("p", {}, `Dropped steps: ${run.dropped}`) : null,
    chartsOf(run, curves, axis, axisWords, points),
    ...Object.entries(run.decisions).map(([name, lines]) => (
      textsOf(`Decisions: ${name}`, lines.map((line) => JSON.stringify(line)))
    )),
    ...Object.entries(logs).map(([name, lines]) => textsOf(`Log of ${name}`, lines)),
  );
}
