"use strict";
// The live page: the table, curves of the chosen runs, and one run.

const byId = (id) => document.getElementById(id);
const chosen = new Set();
let table = { runs: [], axes: {}, figures: {} };
let order = { name: "id", down: false };
let view = null; // of the shown run: {id, runView, drawn}
let compared = null; // what the comparison was asked with

const COLUMNS = [
  ["id", "run", (id) => id], ["state", "state", (state) => state], ["return", "return", number],
  ["target", "target", number], ["env_steps", "agent steps", number],
  ["time_s", "wall time", duration],
];

async function asked(path, query) {
  const answer = await fetch(`${path}?${new URLSearchParams(query)}`);
  if (answer.status === 401) location.replace("/login");
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error || answer.statusText);
  return found;
}

function shownRuns() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (run) => `${run.id} ${run.state} ${Object.values(run.tags).join(" ")}`.toLowerCase();
  const runs = table.runs.filter((run) => words.every((word) => text(run).includes(word)));
  const sign = order.down ? -1 : 1;
  return runs.sort((a, b) => {
    const [x, y] = [a[order.name], b[order.name]];
    if (x === y) return 0;
    if (x === null || y === null) return x === null ? 1 : -1;
    return sign * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y);
  });
}

function boxFor(id, label, runs) {
  const box = element("input", { type: "checkbox", id, "aria-label": label });
  box.checked = runs.length > 0 && runs.every((run) => chosen.has(run.id));
  box.addEventListener("change", () => {
    for (const run of runs) box.checked ? chosen.add(run.id) : chosen.delete(run.id);
    drawTable();
    compare();
  });
  return box;
}

function headOf(runs) {
  const head = element("tr", {}, element("th", { scope: "col" }, boxFor("all-runs", "compare all runs of the table", runs)));
  for (const [name, words] of COLUMNS) {
    const button = element("button", { type: "button", id: `sort-${name}` }, words);
    button.addEventListener("click", () => {
      order = { name, down: order.name === name && !order.down };
      drawTable();
    });
    const sorted = order.name === name ? { "aria-sort": order.down ? "descending" : "ascending" } : {};
    head.append(element("th", { scope: "col", ...sorted }, button));
  }
  head.append(element("th", { scope: "col" }, "tags"));
  return head;
}

function rowOf(run) {
  const link = element("a", { href: `#${encodeURIComponent(run.id)}` }, run.id);
  const cells = COLUMNS.slice(2).map(([name, , words]) => element("td", { class: "number" }, words(run[name])));
  const tags = Object.entries(run.tags).map(([name, words]) => `${name} ${words}`).join(", ");
  return element(
    "tr", {}, element("td", {}, boxFor(`run-${run.id}`, `compare ${run.id}`, [run])), element("td", {}, link),
    element("td", {}, run.whole ? run.state : `${run.state}, being indexed`), ...cells, element("td", {}, tags),
  );
}

function drawTable() {
  const focused = document.activeElement && document.activeElement.id;
  const runs = shownRuns();
  byId("runs").replaceChildren(element("thead", {}, headOf(runs)), element("tbody", {}, ...runs.map(rowOf)));
  const count = `${table.runs.length} ${table.runs.length === 1 ? "run" : "runs"} in ${table.dir}`;
  const indexed = table.runs.filter((run) => !run.whole).length;
  byId("dir").textContent = indexed ? `${count}, ${indexed} being indexed` : count;
  if (focused && byId(focused)) byId(focused).focus();
}

const points = () => Number(byId("smoothing").value);

async function compare() {
  const ids = [...chosen].filter((id) => table.runs.some((run) => run.id === id)).slice(0, 50);
  byId("comparison").hidden = ids.length === 0;
  if (!ids.length || byId("all").hidden) return;
  const query = [["figure", byId("figure").value], ["axis", byId("axis").value], ["each", !byId("band").checked], ...ids.map((id) => ["run", id])];
  const now = JSON.stringify([query, points(), table.runs.filter((run) => chosen.has(run.id)).map((run) => run.lines)]);
  if (now === compared) return;
  compared = now;
  const found = await asked("/api/compare", query);
  if (now !== compared) return; // a later question
  const series = found.lines.map((line) => ({
    label: `${line.label} (${line.note})`, x: line.x, style: "line",
    ...Object.fromEntries(["y", "low", "high"].map((name) => [name, smoothed(line[name], points())])),
  }));
  const smoothing = byId("smoothing").selectedOptions[0].textContent;
  byId("compared-words").textContent = `${found.figure}; smoothing: ${smoothing}`;
  chart.show(table.axes[byId("axis").value], series, null, found.targets);
}

async function drawRun() {
  const id = decodeURIComponent(location.hash.slice(1));
  byId("all").hidden = id !== "";
  byId("one").hidden = id === "";
  if (!id) { view = null; showMonitor(null); }
  if (!id || !table.dir) return; // before the first table
  byId("one-title").textContent = id;
  if (!view || view.id !== id) view = { id, runView: null, row: null };
  const here = view, row = table.runs.find((run) => run.id === id);
  const now = JSON.stringify([row, table.monitors, byId("axis").value, points()]);
  if (row && here.row === now) return;
  here.row = now;
  try {
    if (!row) throw new Error("there is no such run; it may have been deleted");
    const [run, logs] = await Promise.all([asked("/api/run", { id }), asked("/api/logs", { id })]);
    if (here !== view || here.row !== now) return; // a later look
    if (!here.runView) {
      here.runView = new RunView();
      byId("run").replaceChildren(here.runView.root);
    }
    showMonitor(run);
    const axis = byId("axis").value;
    here.runView.show(run, logs, axis, table.axes[axis], points());
  } catch (error) {
    if (here !== view) return;
    here.runView = here.row = null;
    showMonitor(null);
    byId("run").replaceChildren(element("p", { class: "warning" }, `${id}: ${error.message}`));
  }
}

function draw() {
  drawRun();
  compare();
}

function restyled() {
  compared = null;
  if (view) view.row = null;
  draw();
}

function told(message) {
  const first = !Object.keys(table.axes).length;
  table = JSON.parse(message.data);
  byId("told").textContent = "";
  if (first) {
    byId("axis").replaceChildren(...chosenAxis(table.axes));
    byId("figure").replaceChildren(...chosenAxis(table.figures));
  }
  drawTable();
  draw();
}

const chart = new Chart("Chosen runs");
byId("compared").append(chart.root);
for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
byId("filter").addEventListener("input", drawTable);
for (const id of ["axis", "smoothing", "band", "figure"]) byId(id).addEventListener("change", draw);
window.addEventListener("hashchange", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyled);
const events = new EventSource("/api/events");
events.addEventListener("runs", told);
events.addEventListener("error", () => { byId("told").textContent = "no connection; trying again"; });
drawRun();
