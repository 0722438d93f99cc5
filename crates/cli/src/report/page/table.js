"use strict";
// The table of all rows, which can be sorted by any column, and the paths of multipath devices.

const COLUMNS = [
  ["mode", (row) => row.name, null, null], ["load, %", (row) => row.load, (row) => digitsOf(row.load), null], ["IOPS", (row) => row.iops, (row) => count(row.iops), ["iops", count]],
  ["CPU per I/O", (row) => row.cpu, (row) => time(row.cpu), ["cpu", time]], ["of threads", (row) => row.thread, (row) => time(row.thread), null], ["CPU, % of one", (row) => row.cores, (row) => percent(row.cores), null],
  ["stolen per I/O", (row) => row.stolen, (row) => time(row.stolen), null], ["notify per I/O", (row) => row.notify, (row) => time(row.notify), null],
  ["messages/s", (row) => row.messages, (row) => count(row.messages), null], ["system calls per I/O", (row) => row.calls ?? null, (row) => (row.calls === null ? "–" : digitsOf(row.calls)), null], ["wake-ups/s", (row) => row.wakeups, (row) => count(row.wakeups), null],
  ["I/Os per wake-up", (row) => row.per_wakeup, (row) => (row.per_wakeup ? digitsOf(row.per_wakeup) : "–"), null], ["most in a drain", (row) => row.drain, (row) => count(row.drain), null],
  ["mean", (row) => row.mean, (row) => time(row.mean), null], ["p50", (row) => row.p50, (row) => time(row.p50), ["p50", time]], ["p99", (row) => row.p99, (row) => time(row.p99), ["p99", time]],
  ["p99.9", (row) => row.p999, (row) => time(row.p999), ["p999", time]], ["p99.99", (row) => row.p9999, (row) => time(row.p9999), null], ["max", (row) => row.max, (row) => time(row.max), null],
];

const sorting = { column: null, up: true };

function tableChart() {
  const some = groupRows();
  if (!some.length) return null;
  const used = COLUMNS.filter(([, value]) => some.some((row) => value(row) !== null));
  if (sorting.column !== null) {
    const value = COLUMNS[sorting.column][1];
    const order = (a, b) => (value(a) === null) - (value(b) === null) || (sorting.up ? d3.ascending : d3.descending)(value(a), value(b));
    some.sort(order);
  }
  const head = element("tr", {}, ...used.map(heading));
  const body = some.map((row) => element("tr", {}, ...used.map((column) => cell(row, column))));
  return tableFigure("table", "In numbers", `Below the figures their 95 % intervals. ${POOLED} A heading sorts.`, head, body);
}

const PATH_COLUMNS = [
  ["mode", null], ["path", (path) => (path.device ? `${path.path} of ${path.device}` : path.path)], ["state at the end", (path) => path.state], ["I/Os", (path) => count(path.ios)],
  ["sent another way", (path) => count(path.failed)], ["in flight", (path) => digitsOf(path.in_flight)], ["latency", (path) => time(path.lat_ns)],
];

function pathsChart() {
  const some = groupRows().filter((row) => row.paths.length);
  if (!some.length) return null;
  const head = element("tr", {}, ...PATH_COLUMNS.map(([text]) => element("th", { scope: "col", text })));
  const name = (row) => (loadsOf(some).length > 1 ? `${row.name}, ${percent(row.load)}` : row.name);
  const body = some.flatMap((row) => row.paths.map((path) =>
    element("tr", {}, ...PATH_COLUMNS.map(([, show]) => (show === null ? cell(row, [null, () => name(row), null, null]) : element("td", { text: show(path) }))))));
  return tableFigure("paths", "Paths", "What each path did over all that was measured of a mode; in flight and latency are means.", head, body);
}

function tableFigure(chart, title, words, head, body) {
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  const figure = element("figure", { "data-chart": chart }, element("figcaption", {}, element("div", { class: "words" }, element("h2", { text: title }), element("p", { text: words }))),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${title}` }, table));
  figure.draw = () => {};
  return figure;
}

function heading(column) {
  const at = COLUMNS.indexOf(column);
  const arrow = sorting.column === at ? (sorting.up ? " ↑" : " ↓") : "";
  const button = element("button", { type: "button", text: column[0] + arrow });
  button.addEventListener("click", () => {
    sorting.up = sorting.column === at ? !sorting.up : true;
    sorting.column = at;
    redraw();
  });
  return element("th", { scope: "col", "aria-sort": sorting.column === at ? (sorting.up ? "ascending" : "descending") : null }, button);
}

function cell(row, [, value, show, interval]) {
  if (show === null) {
    return element("td", {}, element("span", { class: "dot", style: `background:${row.mode.color}` }), document.createTextNode(value(row)));
  }
  const node = element("td", { text: show(row) });
  const between = interval && row.intervals[interval[0]];
  if (between && between[1] > between[0]) node.append(element("small", { text: `${interval[1](between[0])} – ${interval[1](between[1])}` }));
  return node;
}
