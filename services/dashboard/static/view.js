"use strict";
// What the page and a report show of a run: its flow, figures, charts, decisions, logs.

function boxOf(box) {
  const waits = Object.entries(box.waits).filter(([, share]) => share >= 0.005);
  return element(
    "li", box.slowest ? { class: "slowest" } : {},
    element("h4", {}, box.role + (box.processes === null ? "" : ` × ${box.processes}`)),
    box.slowest ? element("p", { class: "slow" }, "slowest part") : null,
    ...box.rates.map((words) => element("p", {}, words)),
    box.working === null ? null : element("p", {}, `works ${percent(box.working)}`),
    ...waits.map(([label, share]) => element("p", {}, `waits ${percent(share)} for ${label}`)),
    box.restarts ? element("p", { class: "warning" }, `${box.restarts} restarts`) : null,
  );
}

function queueOf(name, fill) {
  const meter = element("meter", { min: 0, max: 1, value: fill, "aria-label": name });
  return element("li", {}, element("h4", {}, name), element("p", {}, `${percent(fill)} full`), meter);
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

function figuresOf(figures) {
  const list = element("dl");
  for (const [name, words] of Object.entries(figures)) {
    list.append(element("div", {}, element("dt", {}, name), element("dd", {}, words)));
  }
  return list;
}

function compressionOf(words) {
  if (!Object.keys(words).length) return null;
  return element("section", {}, element("h3", {}, "Compression"), figuresOf(words));
}

const isWarning = (line) => /\blevel=(WARNING|ERROR|CRITICAL)\b/.test(line);

function warningsOf([warnings, logs]) {
  const ofRoles = Object.entries(logs).flatMap(([role, lines]) => lines.filter(isWarning).map((line) => `${role}: ${line}`));
  const all = [...warnings, ...ofRoles.slice(-20)];
  if (!all.length) return null;
  const items = all.map((words) => element("li", {}, words));
  return element("section", {}, element("h3", {}, "Warnings"), element("ul", { class: "warning" }, ...items));
}

function decisionsOf(table) {
  return element("details", {}, element("summary", {}, table.title), wide(table.title, tableOf(table.columns, table.rows)));
}

function logOf([name, lines]) {
  const warnings = lines.filter(isWarning).length;
  const title = `Log of ${name}${warnings ? ` (${warnings} ${warnings === 1 ? "warning" : "warnings"})` : ""}`;
  const text = element("pre", { tabindex: 0, role: "region", "aria-label": `newest lines of the log of ${name}` }, lines.join("\n"));
  return element("details", {}, element("summary", {}, title), text);
}

// One run, live or over; `root` is its element.
class RunView {
  constructor() {
    this.charts = new Charts();
    this.root = element("div");
    this.above = new Parts(this.root.appendChild(element("div")));
    this.root.append(this.charts.root);
    this.below = new Parts(this.root.appendChild(element("div")));
  }

  show(run, logs, axis, words, points) {
    this.above.show([
      ["state", `${run.state}; ${run.progress.label}`, (text) => element("p", {}, text)],
      ["warnings", [run.warnings, logs], warningsOf],
      ["figures", run.figures, figuresOf],
      ["flow", run.flow, flowOf],
      ["compression", run.compression, compressionOf],
      ["dropped", run.dropped, (text) => (text ? element("p", {}, `Dropped steps: ${text}`) : null)],
    ]);
    this.charts.show(run, axis, words, points);
    this.below.show([
      ...run.decisions.map((table) => [table.title, table, decisionsOf]),
      ...Object.entries(logs).map((log) => [`log ${log[0]}`, log, logOf]),
    ]);
  }
}
