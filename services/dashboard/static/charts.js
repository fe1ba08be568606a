"use strict";
// Curves as charts that follow a run: new points go into the chart that is there.

const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#c2669a", "#a07a00", "#2f8fd0", "#8d68dd", "#888888"];
const HEIGHT = 220;
// With more marks than this, they have no text.
const MOST_TEXTS = 40;

// Means over neighbouring points; those without a value are left out.
function smoothed(values, points) {
  if (points <= 1 || !values) return values;
  const half = Math.floor(points / 2);
  return values.map((value, i) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter((each) => each !== null);
    return near.reduce((sum, each) => sum + each, 0) / near.length;
  });
}

// The columns of series with places of their own: all places, then each series' values at them.
function joined(series) {
  const places = [...new Set(series.flatMap((each) => each.x))].filter((x) => x !== null).sort((a, b) => a - b);
  const at = new Map(places.map((x, i) => [x, i]));
  const column = (x, values) => {
    const made = new Array(places.length).fill(undefined); // undefined: the line goes on
    x.forEach((place, i) => {
      if (place !== null && values[i] !== null) made[at.get(place)] = values[i];
    });
    return made;
  };
  return [places, ...series.flatMap((each) => (
    [each.y, ...(each.low ? [each.high, each.low] : [])].map((values) => column(each.x, values))
  ))];
}

const STYLES = {
  line: {},
  dots: { points: { show: true, size: 5 } },
  points: { width: 0, points: { show: true, size: 7 } },
  step: { paths: window.uPlot && uPlot.paths.stepped({ align: 1 }) },
  target: { dash: [6, 4] },
};

class Chart {
  constructor(title) {
    this.holder = element("div", { class: "chart", role: "img" });
    this.root = element("section", {}, element("h4", {}, title), this.holder);
    this.title = title;
    this.key = null;
    this.plot = null;
    this.marks = { x: [], texts: [] };
    new ResizeObserver(() => {
      if (this.plot && this.holder.clientWidth) this.plot.setSize({ width: this.width(), height: HEIGHT });
    }).observe(this.holder);
  }

  width() {
    return Math.max(200, this.holder.clientWidth);
  }

  // Shows series [{label, x, y, low, high, style}] over an axis, with marks {x, texts}.
  show(axis, series, marks, targets = []) {
    const x = series.flatMap((each) => each.x).filter((place) => place !== null);
    const ends = x.length ? [Math.min(...x), Math.max(...x)] : [];
    const lines = targets.filter(() => ends.length).map((value) => (
      { label: `target ${short(value)}`, x: ends, y: [value, value], style: "target" }
    ));
    const isKnown = (value) => value !== null && value !== undefined;
    // a line of one point would be invisible
    const visible = series.map((each) => (each.y.filter(isKnown).length === 1 ? { ...each, style: "points" } : each));
    const all = [...visible, ...lines];
    const columns = joined(all);
    const colour = getComputedStyle(document.body).color;
    const key = JSON.stringify([axis, colour, all.map((each) => [each.label, each.style, Boolean(each.low)])]);
    this.columns = columns;
    this.marks = marks || { x: [], texts: [] };
    const last = series.map((each) => {
      const known = each.y.filter(isKnown);
      return `${each.label} ${known.length ? short(known[known.length - 1]) : "no value"}`;
    });
    this.holder.setAttribute("aria-label", `${this.title} over ${axis}; newest: ${last.join(", ")}`);
    if (this.plot && key === this.key) {
      this.plot.setData(columns);
      return;
    }
    this.key = key;
    if (this.plot) this.plot.destroy();
    this.plot = null;
    requestAnimationFrame(() => { // its width is known then
      if (this.key !== key || this.plot || !this.root.isConnected) return;
      this.plot = this.made(axis, all, colour);
    });
  }

  made(axis, series, colour) {
    const shown = [{ label: axis, value: (plot, value) => short(value) }], bands = [];
    series.forEach((each, i) => {
      const stroke = each.style === "target" ? "#888888" : COLOURS[i % COLOURS.length];
      const value = (plot, at) => short(at);
      shown.push({ label: each.label, stroke, width: 1.5, spanGaps: true, value, ...STYLES[each.style || "line"] });
      if (!each.low) return;
      const edge = { class: "edge", stroke: `${stroke}55`, width: 1, spanGaps: true, value };
      bands.push({ series: [shown.length, shown.length + 1], fill: `${stroke}33` });
      shown.push({ ...edge, label: "upper end" }, { ...edge, label: "lower end" });
    });
    const grid = { stroke: colour, grid: { stroke: "#88888844" }, ticks: { stroke: "#88888888" } };
    const axes = [grid, grid].map((each) => ({ ...each, values: (plot, splits) => splits.map(short) }));
    axes[1].size = 64;
    const hooks = { draw: [(plot) => this.mark(plot, colour)] };
    const scales = { x: { time: false } };
    return new uPlot({ width: this.width(), height: HEIGHT, series: shown, bands, axes, scales, hooks }, this.columns, this.holder);
  }

  // Dotted lines where something was decided.
  mark(plot, colour) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.strokeStyle = ctx.fillStyle = colour;
    ctx.globalAlpha = 0.7;
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "right";
    this.marks.x.forEach((place, i) => {
      if (place === null) return;
      const at = Math.round(plot.valToPos(place, "x", true));
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
      if (this.marks.x.length > MOST_TEXTS) return;
      ctx.save();
      ctx.translate(at - 3 * devicePixelRatio, bbox.top + 3 * devicePixelRatio);
      ctx.rotate(-Math.PI / 2);
      ctx.fillText(this.marks.texts[i], 0, 0);
      ctx.restore();
    });
    ctx.restore();
  }
}

// The charts of a run by policy and title, in the order in which they come.
class Charts {
  constructor() {
    this.root = element("div");
    this.groups = new Map();
  }

  // Shows the charts of a run over an axis; points: of the smoothing.
  show(run, axis, words, points) {
    const titles = new Set();
    for (const chart of run.charts) {
      const name = JSON.stringify([chart.policy, chart.title]);
      titles.add(name);
      const group = this.group(chart.policy);
      if (!group.charts.has(name)) {
        group.charts.set(name, new Chart(chart.title));
        group.grid.append(group.charts.get(name).root);
      }
      const series = chart.series.map((each) => seriesOf(each, run.curves[each.frame] || {}, axis, points));
      const marks = run.curves[`marks of ${chart.marks}`];
      const target = chart.target === null || chart.target === undefined ? [] : [chart.target];
      group.charts.get(name).show(words, series, marks && { x: marks[axis], texts: marks.texts }, target);
    }
    for (const { charts } of this.groups.values()) {
      for (const [name, chart] of charts) {
        if (titles.has(name)) continue;
        chart.root.remove();
        charts.delete(name);
      }
    }
  }

  group(policy) {
    if (!this.groups.has(policy)) {
      const grid = element("div", { class: "charts" });
      this.groups.set(policy, { grid, charts: new Map() });
      const title = policy === null ? "Curves" : `Policy ${policy}`;
      this.root.append(element("section", {}, element("h3", {}, title), grid));
    }
    return this.groups.get(policy);
  }
}

function seriesOf(series, frame, axis, points) {
  const y = smoothed(frame[series.figure] || [], series.style === "line" ? points : 1);
  const made = { label: series.label, x: frame[axis] || [], y, style: series.style };
  const error = series.error && frame[series.error];
  if (!error) return made;
  const end = (sign) => y.map((value, i) => (value === null || error[i] === null ? null : value + sign * error[i]));
  return { ...made, low: end(-1), high: end(1) };
}
