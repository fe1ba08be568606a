"use strict";
// The live page: the table, curves of the chosen runs, and one run.

const byId = (id) => document.getElementById(id);
const chosen = new Set();
let table = { runs: [], axes: {} };
let order = { name: "id", down: false };

const COLUMNS = [
  ["id", "run"], ["state", "state"], ["return", "return"], ["target", "target"],
  ["env_steps", "agent steps"], ["time_s", "wall time (s)"],
];

async function asked(path, query) {
  const answer = await fetch(`${path}?${new URLSearchParams(query)}`);
  if (answer.status === 401) location.replace("/login");
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error || answer.statusText);
  return found;
}

const number = (value) => (
  value === null ? "" : value.toLocaleString("en", { maximumFractionDigits: 2 })
);

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

function drawTable() {
  const focused = document.activeElement && document.activeElement.id;
  const head = element("tr", {}, element("th", { scope: "col" }, "compare"));
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
  const rows = shownRuns().map((run) => {
    const box = element("input", { type: "checkbox", id: `run-${run.id}`, "aria-label": `compare ${run.id}` });
    box.checked = chosen.has(run.id);
    box.addEventListener("change", () => {
      box.checked ? chosen.add(run.id) : chosen.delete(run.id);
      compare();
    });
    const link = element("a", { href: `#${encodeURIComponent(run.id)}` }, run.id);
    const cells = COLUMNS.slice(2).map(([name]) => element("td", { class: "number" }, number(run[name])));
    const tags = Object.entries(run.tags).map(([name, words]) => `${name} ${words}`).join(", ");
    return element(
      "tr", {}, element("td", {}, box), element("td", {}, link),
      element("td", {}, run.whole ? run.state : `${run.state}, being indexed`), ...cells,
      element("td", {}, tags),
    );
  });
  byId("runs").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  byId("dir").textContent = `${table.runs.length} ${table.runs.length === 1 ? "run" : "runs"} in ${table.dir}`;
  if (focused && byId(focused)) byId(focused).focus();
}

// Runs that differ in their seed alone, by the name without its number.
const groupOf = (id) => id.replace(/[-_.]?\d+$/, "") || id;

function at(x, xs, ys) {
  let i = xs.findIndex((each) => each >= x);
  while (i >= 0 && i < xs.length && ys[i] === null) i += 1;
  if (i < 0 || i >= xs.length || x < xs[0]) return null;
  if (i === 0 || xs[i] === x || ys[i - 1] === null) return ys[i];
  return ys[i - 1] + ((ys[i] - ys[i - 1]) * (x - xs[i - 1])) / (xs[i] - xs[i - 1]);
}

function banded(label, lines) {
  const end = Math.min(...lines.map((line) => line.x[line.x.length - 1]));
  const x = Array.from({ length: 200 }, (_, i) => (end * i) / 199);
  const values = x.map((place) => (
    lines.map((line) => at(place, line.x, line.y)).filter((value) => value !== null)
  ));
  const of = (f) => values.map((each) => (each.length ? f(each) : null));
  const mean = (each) => each.reduce((sum, value) => sum + value, 0) / each.length;
  return {
    label: `${label} (mean of ${lines.length}, from least to largest)`, x,
    y: of(mean), low: of((each) => Math.min(...each)), high: of((each) => Math.max(...each)),
  };
}

async function compare() {
  const axis = byId("axis").value, points = Number(byId("smoothing").value);
  const query = [["figure", "return_mean_100"], ...[...chosen].slice(0, 50).map((id) => ["run", id])];
  if (!chosen.size) return byId("compared").replaceChildren();
  const found = await asked("/api/curves", query);
  const groups = new Map();
  for (const [id, curves] of Object.entries(found)) {
    if (!curves.return_mean_100) continue;
    const key = byId("band").checked ? groupOf(id) : id;
    const line = { label: id, x: curves[axis], y: smoothed(curves.return_mean_100, points) };
    groups.set(key, [...(groups.get(key) || []), line]);
  }
  const series = [...groups].map(([key, lines]) => (lines.length > 1 ? banded(key, lines) : lines[0]));
  const words = byId("smoothing").selectedOptions[0].textContent;
  byId("compared").replaceChildren(chart(`Mean return of 100 episodes (smoothing: ${words})`, table.axes[axis], series));
}

async function drawRun() {
  const id = decodeURIComponent(location.hash.slice(1));
  byId("all").hidden = id !== "";
  byId("one").hidden = id === "";
  if (!id || !table.dir) return; // before the first table
  byId("one-title").textContent = id;
  try {
    if (!table.runs.some((run) => run.id === id)) throw new Error("there is no such run; it may have been deleted");
    const [run, logs] = await Promise.all([asked("/api/run", { id }), asked("/api/logs", { id })]);
    const names = Object.values(run.charts).flat().map((name) => ["figure", name]);
    const curves = await asked("/api/curves", [["run", id], ...names]);
    const opened = new Set([...byId("run").querySelectorAll("details[open] summary")].map((each) => each.textContent));
    const drawn = runOf(run, curves[id] || {}, logs, byId("axis").value, table.axes[byId("axis").value], Number(byId("smoothing").value));
    for (const each of drawn.querySelectorAll("details")) {
      each.open = opened.has(each.firstChild.textContent);
    }
    byId("run").replaceChildren(drawn);
  } catch (error) {
    byId("run").replaceChildren(element("p", { class: "warning" }, `${id}: ${error.message}`));
  }
}

const draw = () => (location.hash.length > 1 ? drawRun() : compare());

function told(message) {
  const first = !Object.keys(table.axes).length;
  table = JSON.parse(message.data);
  byId("told").textContent = "";
  if (first) {
    byId("axis").replaceChildren(...Object.entries(table.axes).map(([value, words]) => element("option", { value }, words)));
  }
  drawTable();
  draw();
}

byId("choices").addEventListener("submit", (event) => event.preventDefault());
byId("filter").addEventListener("input", drawTable);
for (const id of ["axis", "smoothing", "band"]) byId(id).addEventListener("change", draw);
window.addEventListener("hashchange", drawRun);
const events = new EventSource("/api/events");
events.addEventListener("runs", told);
events.addEventListener("error", () => { byId("told").textContent = "no connection; trying again"; });
drawRun();
