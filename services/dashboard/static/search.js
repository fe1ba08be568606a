"use strict";
// Sweeps and populations, as pictures in SVG and tables.

const WIDTH = 900, TOP = 40, BOTTOM = 24, SIDE = 70;
// From the least to the best fitness.
const FROM = [148, 163, 184], TO = [29, 111, 214];

function picture(height, label, ...shapes) {
  const drawn = shape("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label }, ...shapes);
  return wide(label, drawn);
}

const text = (words, x, y, attributes = {}) => shape("text", { x, y, ...attributes }, words);

function scale(log, [low, high], [start, end]) {
  const of = log ? Math.log : (value) => value;
  const length = of(high) - of(low) || 1;
  return (value) => start + ((of(value) - of(low)) / length) * (end - start);
}

function endsOf(values) {
  const known = values.filter((value) => typeof value === "number");
  if (!known.length) return [0, 1];
  return [Math.min(...known), Math.max(...known)];
}

// The axes of the keys and of the fitness: {name, at(value), ticks: [[value, words]]}.
function axesOf(sweep, height) {
  const range = [height - BOTTOM, TOP];
  const made = sweep.keys.map((key) => {
    if (!key.choices) {
      const at = scale(key.log, key.ends, range);
      return { name: key.name, at: (trial) => at(trial.values[key.name]), ticks: key.ends.map((end) => [at(end), short(end)]) };
    }
    const texts = key.choices.map((choice) => JSON.stringify(choice));
    const at = scale(false, [0, texts.length - 1], range);
    const place = (trial) => at(texts.indexOf(JSON.stringify(trial.values[key.name])));
    return { name: key.name, at: place, ticks: key.choices.map((choice, i) => [at(i), short(choice)]) };
  });
  const ends = endsOf(sweep.trials.map((trial) => trial.fitness));
  const at = scale(false, ends, range);
  const place = (trial) => (trial.fitness === null ? null : at(trial.fitness));
  return [...made, { name: "fitness", at: place, ticks: ends.map((end) => [at(end), short(end)]) }];
}

function colourOf(fitness, [low, high]) {
  const share = high > low ? (fitness - low) / (high - low) : 1;
  return `rgb(${FROM.map((from, i) => Math.round(from + share * (TO[i] - from))).join(",")})`;
}

const wordsOf = (trial) => `trial ${trial.number}, ${trial.state}, fitness ${trial.fitness === null ? "unknown" : short(trial.fitness)}`;

// Each trial is a line through its values; the colour is its fitness.
function parallelOf(sweep) {
  const height = 320, axes = axesOf(sweep, height);
  const step = (WIDTH - 2 * SIDE) / (axes.length - 1);
  const ends = endsOf(sweep.trials.map((trial) => trial.fitness));
  const isBest = (trial) => trial.number === sweep.best;
  const order = [...sweep.trials].sort((a, b) => isBest(a) - isBest(b) || (a.fitness ?? -Infinity) - (b.fitness ?? -Infinity));
  const lines = order.map((trial) => {
    const places = axes.map((axis, i) => [SIDE + i * step, axis.at(trial)]).filter(([, y]) => Number.isFinite(y));
    const style = trial.fitness === null ? "none" : isBest(trial) ? "best" : trial.state;
    return shape("polyline", {
      points: places.map((place) => place.map((at) => at.toFixed(1)).join(",")).join(" "),
      class: `trial ${style}`, "data-trial": trial.number,
      ...(trial.fitness === null || isBest(trial) ? {} : { stroke: colourOf(trial.fitness, ends) }),
    }, shape("title", {}, wordsOf(trial)));
  });
  const rules = axes.flatMap((axis, i) => {
    const x = SIDE + i * step;
    return [
      shape("line", { x1: x, x2: x, y1: TOP, y2: height - BOTTOM, class: "rule" }),
      text(axis.name, x, i % 2 ? 28 : 13, { "text-anchor": i === 0 ? "start" : i === axes.length - 1 ? "end" : "middle" }),
      ...axis.ticks.map(([y, words]) => text(words, x + 5, y + 4, { class: "tick" })),
    ];
  });
  return picture(height, `Parallel coordinates of ${sweep.trials.length} trials: ${axes.map((axis) => axis.name).join(", ")}`, ...lines, ...rules);
}

function importanceOf(importance) {
  if (!importance.length) return element("p", {}, "The importance of the keys is known after some trials.");
  const rows = importance.map(([key, share]) => [
    key, element("meter", { min: 0, max: 1, value: share, "aria-label": `importance of ${key}` }), percent(share),
  ]);
  return wide("Table of the importance of keys", tableOf(["key", "importance", "share"], rows));
}

function bestOf(search) {
  if (search.yaml === null) return element("p", {}, "There is no best configuration yet.");
  const query = new URLSearchParams({ id: search.id, kind: search.kind });
  return element(
    "div", {}, element("p", {}, "Train from it: ", element("code", {}, search.command)),
    element("p", {}, element("a", { href: `/api/best?${query}`, download: "best.yaml" }, "Download best.yaml")),
    element("details", {}, element("summary", {}, "The best configuration"),
      element("pre", { tabindex: 0, role: "region", "aria-label": "best configuration" }, search.yaml)),
  );
}

const linkTo = (id) => element("a", { href: `#${encodeURIComponent(id)}` }, id);

// The best first; a row that has the focus or the pointer marks its line in the picture.
function trialsOf(sweep) {
  const keys = sweep.keys.map((key) => key.name);
  const order = [...sweep.trials].sort((a, b) => (b.fitness ?? -Infinity) - (a.fitness ?? -Infinity) || a.number - b.number);
  const rows = order.map((trial) => [
    String(trial.number), trial.state, short(trial.fitness), ...keys.map((key) => short(trial.values[key])),
    element("span", {}, ...trial.runs.flatMap((run) => [linkTo(run), " "])), trial.reason,
  ]);
  const table = tableOf(["trial", "state", "fitness", ...keys, "runs", "reason"], rows);
  [...table.tBodies[0].rows].forEach((row, i) => {
    const mark = (on) => () => {
      for (const line of document.querySelectorAll(`[data-trial="${order[i].number}"]`)) line.classList.toggle("marked", on);
    };
    for (const [name, on] of [["pointerenter", true], ["focusin", true], ["pointerleave", false], ["focusout", false]]) {
      row.addEventListener(name, mark(on));
    }
  });
  return wide("Table of trials", table);
}

function statesOf(trials) {
  const counts = new Map();
  for (const { state } of trials) counts.set(state, (counts.get(state) || 0) + 1);
  return [...counts].map(([state, count]) => `${count} ${state}`).join(", ");
}

// A figure of all members over the rounds, with who has it from whom.
function panelOf(panel) {
  const height = panel.key === null ? 300 : 200;
  const rounds = endsOf(panel.points.map(([round]) => round));
  const x = scale(false, rounds, [SIDE, WIDTH - 20]);
  const ends = endsOf(panel.points.map(([, value]) => value));
  const y = scale(panel.log, ends, [height - BOTTOM, TOP - 20]);
  const at = ([round, value]) => `${x(round).toFixed(1)},${y(value).toFixed(1)}`;
  const line = (points, style) => shape("polyline", { points: points.map(at).join(" "), class: style });
  const steps = panel.best.flatMap((point, i) => (i ? [[point[0], panel.best[i - 1][1]], point] : [point]));
  const name = panel.key === null ? "Fitness" : panel.key;
  return element(
    "section", {}, element("h4", {}, name),
    picture(
      height, `${name} of the members over rounds ${rounds[0]} to ${rounds[1]}`,
      ...panel.stays.map((ends) => line(ends, "stays")), ...panel.copies.map((ends) => line(ends, "copies")),
      ...panel.points.map((point) => shape("circle", { cx: x(point[0]), cy: y(point[1]), r: 3, class: "member" }, shape("title", {}, `round ${point[0]}: ${short(point[1])}`))),
      line(panel.ancestors, "ancestors"), line(steps, "best-so-far"),
      ...panel.dead.map((round) => text("×", x(round), height - BOTTOM + 4, { class: "dead", "text-anchor": "middle" })),
      ...ends.map((end) => text(short(end), SIDE - 8, y(end) + 4, { class: "tick", "text-anchor": "end" })),
      ...rounds.map((round, i) => text(`round ${round}`, x(round), height - 4, { class: "tick", "text-anchor": i ? "end" : "start" })),
    ),
  );
}

function membersOf(members) {
  const keys = Object.keys(members.length ? members[0].values : {});
  const rows = members.map((each) => [linkTo(each.run), each.status, short(each.fitness), ...keys.map((key) => short(each.values[key])), each.detail]);
  return wide("Table of members", tableOf(["member", "status", "fitness", ...keys, "why it is dead"], rows));
}

function section(title, ...children) {
  return element("section", {}, element("h3", {}, title), ...children);
}

const LEGEND = "Grey lines join a member's rounds, orange ones a copy and its parent. The blue line is the way of the best "
  + "agent's weights, or hyper-parameters; the steps are the best fitness so far; a cross is a member that died.";

// The parts of a search for `Parts`.
function partsOfSearch(search) {
  const best = ["best", [search.yaml, search.command], () => section("Best configuration", bestOf(search))];
  if (search.kind === "population") {
    const words = search.best && `The best so far: member ${search.best.member} in round ${search.best.round}, fitness ${short(search.best.fitness)}.`;
    return [
      ["words", words, () => element("p", {}, words || "No member has been judged yet.")],
      ["rounds", search.panels, () => section("Rounds", element("p", {}, LEGEND), ...search.panels.map(panelOf))],
      best,
      ["members", search.members, () => section("Members", membersOf(search.members))],
    ];
  }
  const words = `${search.trials.length} trials: ${statesOf(search.trials)}; fitness: ${search.fitness}`;
  return [
    ["words", words, () => element("p", {}, words)],
    ["lines", [search.keys, search.trials, search.best], () => section("Parallel coordinates", parallelOf(search))],
    ["importance", search.importance, () => section("Importance of the keys", importanceOf(search.importance))],
    best,
    ["trials", [search.trials, search.keys], () => section("Trials", trialsOf(search))],
  ];
}
