"use strict";
// Functions for all charts: elements, marks of a mode, axes, panels.

// Creates an element; `text` is inserted as text, never as markup.
function element(name, { text, ...attributes } = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    node.setAttribute(key, value === true ? "" : value);
  }
  if (text !== undefined) node.textContent = text;
  node.append(...children);
  return node;
}

// An axis for `values`: logarithmic if they span more than a factor of three, with a margin at the ends, and a separate position for 0.
function scale(values, label, format, { log, zero = false, ticks = 5 } = {}) {
  const known = values.filter((value) => value !== null && value !== undefined && Number.isFinite(value));
  const positive = known.filter((value) => value > 0);
  let [low, high] = [Math.min(...positive), Math.max(...positive)];
  if (positive.length > 0 && (log ?? high / low > 3)) {
    const room = Math.max((high / low) ** 0.06, 1.04);
    const tens = logTicks(low / room, high * room, ticks);
    const own = known.length > positive.length ? { type: "symlog", constant: low, domain: [0, high * room], values: [0, ...tens] } : { type: "log", domain: [low / room, high * room], values: tens };
    return { ...own, label: label ? `${label} (log)` : "log scale", tickFormat: (value) => format(value), ticks, grid: true };
  }
  [low, high] = known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  // Figures that cannot be negative have no axis below 0.
  const least = low < 0 ? low - room : Math.max(0, low - room);
  const domain = [zero ? Math.min(0, low) : least, high + room];
  // Enough digits to distinguish adjacent ticks.
  const digits = Math.max(3, Math.ceil(Math.log10(Math.max(Math.abs(domain[0]), Math.abs(domain[1])) / (domain[1] - domain[0]))) + 2);
  return { type: "linear", domain, label, tickFormat: (value) => format(value, digits), ticks, grid: true };
}

// Ticks of a logarithmic axis: powers of ten if there are enough, else 1-2-5, else equal steps.
function logTicks(low, high, most) {
  for (const steps of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]]) {
    const found = [];
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
      for (const step of steps) if (power * step >= low && power * step <= high) found.push(power * step);
    }
    if (found.length >= Math.min(3, most)) return found.filter((_, at) => found.length <= most + 1 || at % 2 === 0);
  }
  return d3.ticks(low, high, most);
}

// Grid and axis of one direction.
function axes(x, y) {
  const grid = { strokeOpacity: 0.16 };
  const fit = (axis) => (axis.values ? { ticks: axis.values } : { ticks: axis.ticks });
  return [Plot.gridX({ ...fit(x), ...grid }), Plot.gridY({ ...fit(y), ...grid }), Plot.axisX({ ...fit(x), tickFormat: x.tickFormat, label: null, tickSize: 0 }),
    Plot.axisY({ ...fit(y), tickFormat: y.tickFormat, label: null, tickSize: 0 })];
}

const bare = ({ values, ticks, grid, tickFormat, ...axis }) => axis;

// Symbols without an area, which are drawn with strokes only.
const STROKES = ["times", "plus"];

// Points of one mode; pale if they are inconclusive.
function points(some, mode, x, y, options = {}) {
  const [fill, stroke, strokeWidth] = STROKES.includes(mode.symbol) ? ["none", mode.color, 2] : mode.hollow ? ["var(--card)", mode.color, 1.8] : [mode.color, "var(--card)", 0.8];
  return Plot.dot(some, { x, y, symbol: mode.symbol, r: 4.2, fill, stroke, strokeWidth, opacity: (row) => (row.valid === false ? 0.35 : 1), ...options });
}

// A line of one mode, in the order of its rows.
function line(some, mode, x, y, options = {}) {
  const dash = mode.hollow ? "5 4" : null;
  return Plot.line(some, { x, y, stroke: mode.color, strokeWidth: mode.name === "adaptive" ? 2.6 : 1.7, strokeDasharray: dash, ...options });
}

// 95 % intervals of `figure` as bars: vertical, or horizontal if the figure is on the x axis.
function intervals(some, mode, figure, other, { lying = false } = {}) {
  const known = some.filter((row) => row.intervals[figure] && row.intervals[figure][1] > row.intervals[figure][0]);
  const [low, high] = [(row) => row.intervals[figure][0], (row) => row.intervals[figure][1]];
  const look = { stroke: mode.color, strokeWidth: 1.4, strokeOpacity: 0.75 };
  return lying ? Plot.ruleY(known, { y: other, x1: low, x2: high, ...look }) : Plot.ruleX(known, { x: other, y1: low, y2: high, ...look });
}

const withInterval = (row, figure) => [row[figure], ...(row.intervals[figure] ?? [])];

// The text of a tooltip; the nearest points come first.
function tip(some, x, y, words, options = {}) {
  return Plot.tip(some, Plot.pointer({ x, y, title: words, fill: "var(--card)", stroke: "var(--line)", fontSize: 12, lineHeight: 1.25, textPadding: 9, ...options }));
}

// The tooltip of a row.
function tell(row) {
  const between = (figure, format) => {
    const interval = row.intervals[figure];
    return row[figure] === null ? "–" : format(row[figure]) + (interval && interval[1] > interval[0] ? `  (${format(interval[0])} – ${format(interval[1])})` : "");
  };
  return [
    `${row.name}, ${loadWords(row.load)}`, `IOPS  ${between("iops", count)}`, `CPU per I/O  ${between("cpu", time)}`, `p50  ${between("p50", time)}`,
    `p99  ${between("p99", time)}`, `p99.9  ${between("p999", time)}`, row.per_wakeup ? `completions per wake-up  ${digitsOf(row.per_wakeup)}` : "no wake-ups",
  ].join("\n");
}

// Draws one plot into a panel, with a heading and axis labels, at the available width. `said`: description for screen readers.
function panel(heading, draw, { labels, height = 230 } = {}) {
  const node = element("div", { class: "panel" }, element("h3", { text: heading }));
  const place = element("div", {});
  node.append(place);
  node.draw = () => {
    const width = Math.max(220, Math.floor(node.clientWidth));
    const { marks, x, y, names = [], said = `${y.label} against ${x.label}`, ...options } = draw(width);
    const plot = Plot.plot({
      width, height, marginLeft: 52, marginRight: 16, marginTop: labels ? 22 : 12, marginBottom: 38, x: bare(x), y: bare(y),
      style: { background: "transparent", fontFamily: "inherit", fontSize: "11.5px", overflow: "visible" }, ...options,
      marks: [...(options.ownAxes ? [] : axes(x, y)), ...marks, ...axisWords(x, y, { width, ...options })],
    });
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `${heading}: ${said}`);
    place.replaceChildren(plot);
    nameSpots(plot, names.map(({ at: [left, top], ...name }) => ({ x: plot.scale("x").apply(left), y: plot.scale("y").apply(top), ...name })), { left: 52, right: width, bottom: height - 38 });
  };
  return node;
}

// The labels of the axes: above the y axis, below the x axis.
function axisWords(x, y, { marginLeft = 52 } = {}) {
  const soft = { fill: "var(--soft)", fontSize: 11.5 };
  const words = [];
  if (y.label) words.push(Plot.text([`↑ ${y.label}`], { frameAnchor: "top-left", dx: 4 - marginLeft, dy: -18, textAnchor: "start", ariaLabel: "y label", ...soft }));
  if (x.label) words.push(Plot.text([`${x.label} →`], { frameAnchor: "bottom-right", dy: 32, textAnchor: "end", ariaLabel: "x label", ...soft }));
  return words;
}

// A chart: heading, explanation, panels. Charts register in `charts` with the data that they need; see page.js.
function chart(id, heading, words, panels, { pick = [], width = 300, key = null } = {}) {
  const caption = element("figcaption", {}, element("div", { class: "words" }, element("h2", { text: heading }), element("p", { text: words })));
  if (pick.length) caption.append(element("div", { class: "pick" }, ...pick));
  const grid = element("div", { class: panels.length > 1 ? "panels" : "panels alone", style: `--panel:${width}px` }, ...panels);
  const figure = element("figure", { "data-chart": id }, caption, ...(key ? [key] : []), grid);
  figure.draw = () => panels.forEach((one) => one.draw());
  return figure;
}

// A control that selects one of several values.
function choice(label, options, chosen, change) {
  const select = element("select", { "aria-label": label }, ...options.map(([value, text]) => element("option", { value, text, selected: value === chosen })));
  select.addEventListener("change", () => change(select.value));
  return element("label", {}, element("span", { text: label }), select);
}

// Labels of points. Each label is placed at the nearest free position around its point, with a line if that is far away.
function nameSpots(plot, spots, { left, right, bottom }) {
  const taken = spots.map(({ x, y }) => ({ x0: x - 6, x1: x + 6, y0: y - 6, y1: y + 6 }));
  const free = (box) => box.x0 >= left && box.x1 <= right && box.y0 >= 0 && box.y1 <= bottom && !taken.some((other) => box.x0 < other.x1 && other.x0 < box.x1 && box.y0 < other.y1 && other.y0 < box.y1);
  const svg = d3.select(plot);
  for (const { x, y, text, color, bold } of spots) {
    const line = svg.append("line").attr("stroke", color).attr("stroke-opacity", 0.5);
    const name = svg.append("text").attr("class", "name").attr("fill", color).attr("font-weight", bold ? 700 : 400).attr("text-anchor", "middle").text(text);
    const [w, h] = [(name.node().getComputedTextLength() || 6.5 * text.length) / 2 + 3, 8];
    const circles = d3.range(8, right, 6).flatMap((r) => d3.range(0, 2 * Math.PI, Math.PI / 12).map((angle) => [r, x + (r + w) * Math.cos(angle), y + (r + h) * Math.sin(angle)]));
    const found = circles.map(([r, cx, cy]) => ({ r, cx, cy, x0: cx - w, x1: cx + w, y0: cy - h, y1: cy + h })).find(free);
    // A point without a label has its name in the tooltip.
    if (!found) {
      name.remove();
      line.remove();
      continue;
    }
    taken.push(found);
    name.attr("x", found.cx).attr("y", found.cy + 4);
    if (found.r < 20) line.remove();
    else line.attr("x1", x).attr("y1", y).attr("x2", Math.max(found.x0, Math.min(x, found.x1))).attr("y2", Math.max(found.y0, Math.min(y, found.y1)));
  }
}
