"use strict";
// The live page: the table, curves of the chosen runs, and one run.

const byId = (id) => document.getElementById(id);
const chosen = new Set();
let table = { runs: [], searches: [], axes: {}, figures: {} };
let order = { name: "id", down: false };
let view = null; // what is shown of a run or a search: {id, drawn, row}
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
  const runsThere = table.runs.length ? `${table.runs.length} ${table.runs.length === 1 ? "run" : "runs"}` : "there are no runs";
  const count = `${runsThere} in ${table.dir}`;
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

// Words of an address that stands for a search, not for a run; no encoded name begins so.
const SEARCH = "search:";

function drawSearches() {
  byId("searches").hidden = table.searches.length === 0;
  byId("search-list").replaceChildren(...table.searches.map((search) => {
    const link = element("a", { href: `#${SEARCH}${encodeURIComponent(`${search.kind}/${search.id}`)}` }, search.id);
    return element("li", {}, link, ` (${search.kind})`);
  }));
}

// What the address names: its title, its row in the table, and how to show it.
function named() {
  const hash = location.hash.slice(1);
  if (!hash.startsWith(SEARCH)) {
    const id = decodeURIComponent(hash);
    return { key: hash, title: id, row: table.runs.find((run) => run.id === id), what: "run", show: showRun };
  }
  const [kind, ...parts] = decodeURIComponent(hash.slice(SEARCH.length)).split("/");
  const id = parts.join("/");
  const row = table.searches.find((search) => search.id === id && search.kind === kind);
  return { key: hash, title: id, row, what: kind, show: showSearch };
}

async function showRun(row, here, isOld) {
  const [run, logs] = await Promise.all(["/api/run", "/api/logs"].map((path) => asked(path, { id: row.id })));
  if (isOld()) return;
  here.drawn = here.drawn || new RunView();
  if (!here.drawn.root.isConnected) byId("run").replaceChildren(here.drawn.root);
  showMonitor(run);
  const axis = byId("axis").value;
  here.drawn.show(run, logs, axis, table.axes[axis], points());
}

async function showSearch(row, here, isOld) {
  const search = await asked("/api/search", { id: row.id, kind: row.kind });
  if (isOld()) return;
  here.drawn = here.drawn || new Parts(element("div"));
  if (!here.drawn.root.isConnected) byId("run").replaceChildren(here.drawn.root);
  here.drawn.show(partsOfSearch(search));
}

async function drawOne() {
  const { key, title, row, what, show } = named();
  byId("all").hidden = key !== "";
  byId("one").hidden = key === "";
  if (!key) view = null;
  if (!view || view.key !== key) showMonitor(null);
  if (!key || !table.dir) return; // before the first table
  byId("one-title").textContent = title;
  if (!view || view.key !== key) view = { key, drawn: null, row: null };
  const here = view, now = JSON.stringify([row, table.monitors, byId("axis").value, points()]);
  if (row && here.row === now) return;
  here.row = now;
  try {
    if (!row) throw new Error(`there is no such ${what}; it may have been deleted`);
    await show(row, here, () => here !== view || here.row !== now);
  } catch (error) {
    if (here !== view) return;
    here.drawn = here.row = null;
    showMonitor(null);
    byId("run").replaceChildren(element("p", { class: "warning" }, `${title}: ${error.message}`));
  }
}

function draw() {
  drawOne();
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
  drawSearches();
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
drawOne();
