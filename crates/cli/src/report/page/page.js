"use strict";
// Builds the page: title, controls, charts, and the switch between light and dark.

const CHARTS = [paretoChart, loadChart, splitChart, distributionChart, timelineChart, pathsChart, tableChart];

// Colours of modes as CSS variables, for light and dark.
function colours() {
  const of = (theme) => [...modes.values()].map((mode) => `--mode-${mode.number}:${mode[theme]}`).join(";");
  document.head.append(element("style", { text: `:root{${of("light")}}:root[data-theme="dark"]{${of("dark")}}` }));
}

function head() {
  const verdict = document.getElementById("verdict");
  document.getElementById("title").textContent = data.verdict.length ? data.title : "reap";
  verdict.replaceChildren(...(data.verdict.length ? data.verdict : [data.title]).map((text) => element("span", { text })));
  verdict.classList.toggle("inconclusive", rows.every((row) => !row.valid));
  const date = document.getElementById("date");
  date.dateTime = new Date(data.date).toISOString();
  date.textContent = `${date.dateTime.slice(0, 16).replace("T", " ")} UTC`;
  document.getElementById("command").textContent = data.command;
  document.getElementById("version").textContent = `reap ${data.version}; ${data.results.device}`;
  const notes = data.notes.some((note) => note.includes(data.machine)) ? data.notes : [`Machine: ${data.machine}.`, ...data.notes];
  document.getElementById("notes").replaceChildren(...notes.map((note) => element("li", { text: note })));
  document.getElementById("download").addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([JSON.stringify(data.results, null, 2)], { type: "application/json" }));
    const link = element("a", { download: "reap.json" });
    link.href = url;
    link.click();
    URL.revokeObjectURL(url);
  });
}

// The system's setting, until the button changes it.
function theme() {
  const wish = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const apply = () => {
    const dark = chosen === null ? wish.matches : chosen === "dark";
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    document.getElementById("theme").textContent = dark ? "☀ Light" : "☾ Dark";
  };
  document.getElementById("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    apply();
  });
  wish.addEventListener("change", apply);
  apply();
}

// The legend entry of a mode: line and symbol.
function sample(mode) {
  const svg = d3.create("svg").attr("viewBox", "-13 -7 26 14").attr("aria-hidden", "true");
  svg.append("line").attr("x1", -13).attr("x2", 13).attr("stroke", mode.color).attr("stroke-width", 2).attr("stroke-dasharray", mode.hollow ? "5 4" : null);
  const symbol = { circle: d3.symbolCircle, cross: d3.symbolCross, diamond: d3.symbolDiamond, diamond2: d3.symbolDiamond2, hexagon: Plot.symbolHexagon ?? d3.symbolCircle,
    plus: d3.symbolPlus, square: d3.symbolSquare, square2: d3.symbolSquare2, star: d3.symbolStar, times: d3.symbolTimes, triangle: d3.symbolTriangle, wye: d3.symbolWye }[mode.symbol];
  const stroked = STROKES.includes(mode.symbol);
  svg.append("path").attr("d", d3.symbol(symbol ?? d3.symbolCircle, 62)()).attr("fill", stroked ? "none" : mode.hollow ? "var(--card)" : mode.color).attr("stroke", mode.hollow || stroked ? mode.color : "none").attr("stroke-width", 1.6);
  return svg.node();
}

function controls() {
  const place = document.getElementById("controls");
  place.replaceChildren();
  const buttons = [...modes.values()].map((mode) => {
    const button = element("button", { type: "button", class: "mode", "aria-pressed": String(mode.shown), title: "Click: show or hide. Double-click: this one only, or all again" }, sample(mode), document.createTextNode(mode.name));
    button.addEventListener("click", () => ((mode.shown = !mode.shown), redraw()));
    button.addEventListener("dblclick", () => {
      const alone = [...modes.values()].every((other) => other === mode || !other.shown);
      modes.forEach((other) => (other.shown = alone || other === mode));
      redraw();
    });
    return button;
  });
  place.append(element("div", { class: "modes", role: "group", "aria-label": "Modes shown" }, ...buttons));
}

// Controls of a chart, in order.
const controlsOf = (figure) => [...figure.querySelectorAll("select, button, [tabindex]")];

// Saves the focused control and the scroll positions of tables, to restore them after charts were redrawn.
function keepPlace() {
  const figures = [...document.querySelectorAll("figure[data-chart]")];
  const name = (figure) => figure.dataset.chart;
  const held = figures.find((figure) => figure.contains(document.activeElement));
  const focus = held ? [name(held), controlsOf(held).indexOf(document.activeElement)] : null;
  const scrolled = new Map(figures.map((figure) => [name(figure), figure.querySelector(".scroll")?.scrollLeft ?? 0]));
  return (figure) => {
    const table = figure.querySelector(".scroll");
    if (table) table.scrollLeft = scrolled.get(name(figure)) ?? 0;
    if (focus && focus[0] === name(figure)) controlsOf(figure)[focus[1]]?.focus({ preventScroll: true });
  };
}

const NOTHING = "No mode is shown: a press on one of the buttons above brings it back.";

function redraw() {
  document.querySelectorAll(".mode").forEach((button, at) => button.setAttribute("aria-pressed", String([...modes.values()][at].shown)));
  const figures = CHARTS.map((make) => make()).filter((figure) => figure !== null);
  const back = keepPlace();
  const first = figures.filter((figure) => figure.dataset.chart === "pareto");
  document.getElementById("first").replaceChildren(...first);
  document.getElementById("charts").replaceChildren(...(figures.length ? figures.slice(first.length) : [element("p", { role: "status", text: NOTHING })]));
  figures.forEach((figure) => figure.draw());
  figures.forEach(back);
}

colours();
head();
theme();
controls();
redraw();

// Charts fill the width of their container.
let width = document.documentElement.clientWidth;
addEventListener("resize", () => {
  if (document.documentElement.clientWidth === width) return;
  width = document.documentElement.clientWidth;
  document.querySelectorAll("figure").forEach((figure) => figure.draw());
});
