"use strict";
// Elements of the pages. All text is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((each) => each !== null));
  return made;
}

function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function shape(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

const percent = (share) => `${Math.round(100 * share)} %`;

const number = (value) => (
  value === null || value === undefined ? "" : value.toLocaleString("en", { maximumFractionDigits: 2 })
);

// A number of any size in few characters, amounts with k, M and G.
function short(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return typeof value === "string" ? value : JSON.stringify(value);
  for (const [border, unit] of [[1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (Math.abs(value) >= border) return `${Number((value / (border === 1e4 ? 1e3 : border)).toPrecision(4))}${unit}`;
  }
  return value !== 0 && Math.abs(value) < 1e-3 ? Number(value.toPrecision(3)).toExponential() : String(Number(value.toPrecision(4)));
}

function duration(seconds) {
  if (seconds === null) return "";
  const [hours, minutes, rest] = [seconds / 3600, (seconds / 60) % 60, seconds % 60].map(Math.floor);
  return `${hours}:${String(minutes).padStart(2, "0")}:${String(rest).padStart(2, "0")}`;
}

// A table that may be wider than the page: then it scrolls, by the keyboard too.
function wide(label, table) {
  return element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, table);
}

// Rows of texts or elements.
function tableOf(columns, rows) {
  const head = columns.map((words) => element("th", { scope: "col" }, words));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell))));
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}

function chosenAxis(axes) {
  return Object.entries(axes).map(([value, words]) => element("option", { value }, words));
}

// Parts of a page, each made again only when its data have changed, so that what is open, scrolled
// and focused stays so while a run goes on.
class Parts {
  constructor(root) {
    this.root = root;
    this.known = new Map();
  }

  // Shows these [name, data, make] in this order; make(data) gives an element or null.
  show(parts) {
    const names = new Set(parts.map(([name]) => name));
    for (const [name, part] of this.known) {
      if (names.has(name)) continue;
      part.holder.remove();
      this.known.delete(name);
    }
    let before = null;
    for (const [name, data, make] of parts) {
      const text = JSON.stringify(data);
      const part = this.known.get(name) || { holder: element("div"), text: null };
      this.known.set(name, part);
      if (part.text !== text) this.fill(part, text, make(data));
      const next = before ? before.nextSibling : this.root.firstChild;
      if (next !== part.holder) this.root.insertBefore(part.holder, next);
      before = part.holder;
    }
  }

  fill(part, text, made) {
    const old = part.holder.querySelector("details");
    const scrolled = part.holder.querySelector("pre, .wide");
    const [top, left] = scrolled ? [scrolled.scrollTop, scrolled.scrollLeft] : [0, 0];
    const focused = part.holder.contains(document.activeElement) ? document.activeElement.localName : null;
    part.text = text;
    part.holder.replaceChildren(...(made ? [made] : []));
    const details = part.holder.querySelector("details");
    if (old && details) details.open = old.open;
    const again = part.holder.querySelector("pre, .wide");
    if (again) [again.scrollTop, again.scrollLeft] = [top, left];
    const found = focused && part.holder.querySelector(focused);
    if (found) found.focus({ preventScroll: true });
  }
}
