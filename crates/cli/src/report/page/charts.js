"use strict";
// Charts of rows. Each function returns a chart of the rows of the selected group, or nothing if there is no data.

const byMode = (some, make) => d3.groups(some, (row) => row.mode).flatMap(([mode, own]) => make(own, mode));

const POOLED = "Latencies are percentiles of all blocks (or seeds) together, the others medians; an interval takes six.";

// The Pareto front: rows for which no other row has both less CPU time and less latency.
function front(some, x, y) {
  const sorted = [...some].sort((a, b) => a[x] - b[x] || a[y] - b[y]);
  return sorted.filter((row, at) => sorted.slice(0, at).every((other) => other[y] > row[y]));
}

// CPU time against latency in one scene, with axes from zero.
function paretoChart() {
  const scene = scenes[state.scene];
  const known = (figure) => groupRows().filter((row) => row.load === scene.load && row.cpu !== null && row[figure] !== null);
  const figure = known("p99").length ? "p99" : "mean";
  const some = known(figure);
  if (!some.length) return null;
  const best = front(some, "cpu", figure);
  const axis = (of, label) => scale(some.flatMap((row) => withInterval(row, of)), label, time, { ticks: 4, log: false, zero: true });
  const names = some.map((row) => ({ at: [row.cpu, row[figure]], text: row.knob === null ? row.name : `${row.mode.name} ${row.knob.text}`, color: row.mode.color, bold: row.best }));
  const marks = byMode(some, (own, mode) => [
    intervals(own, mode, "cpu", figure, { lying: true }), intervals(own, mode, figure, "cpu"), points(own, mode, "cpu", figure, { r: 5 }),
  ]);
  const steps = Plot.line(best, { x: "cpu", y: figure, curve: "step-after", stroke: "var(--soft)", strokeOpacity: 0.45, strokeWidth: 5, strokeLinejoin: "round" });
  const draw = () => ({
    x: axis("cpu", "CPU per I/O"), y: axis(figure, `${figure} latency`), names, said: some.map((row) => `${row.name} ${time(row.cpu)}, ${time(row[figure])}`).join("; "),
    marks: [...(best.length > 1 ? [steps] : []), ...marks, tip(some, "cpu", figure, tell)],
  });
  const options = scenes.map(({ name }, at) => [String(at), name]);
  const pick = scenes.length > 1 ? [choice("Scene", options, String(state.scene), (at) => ((state.scene = Number(at)), redraw()))] : [];
  return chart("pareto", `CPU against ${figure} latency`,
    "Left is cheaper, down is sooner. Bars are 95 % intervals; grey steps join the modes that no other beats in both. Pale: inconclusive. Bold: recommended.",
    [panel(scene.name, draw, { labels: true, height: document.documentElement.clientWidth < 600 ? 360 : 480 })], { pick });
}

// Charts of a figure against the load: heading, figure, axis label, unit.
const AGAINST_LOAD = [
  ["Throughput", "iops", "IOPS", count], ["CPU per I/O", "cpu", "CPU per I/O", time], ["Median latency", "p50", "p50", time], ["p99 latency", "p99", "p99", time],
];

// A square-root axis separates low loads, and still shows high ones.
function loadAxis(loads) {
  const ticks = [];
  const place = (load) => Math.sqrt(load);
  for (const load of [...loads].reverse()) if (!ticks.length || place(ticks.at(-1)) - place(load) > 0.75) ticks.push(load);
  return { type: "sqrt", domain: [0, Math.max(100, ...loads)], label: "offered load, % of what poll reaches (√)", tickFormat: (load) => `${load}`, values: ticks.reverse() };
}

function againstLoad(some, figure, label, format) {
  const known = onePerMode(some).filter((row) => row[figure] !== null).sort((a, b) => a.load - b.load);
  const x = loadAxis(loadsOf(some));
  const y = scale(known.flatMap((row) => withInterval(row, figure)), label, format);
  const marks = byMode(known, (own, mode) => [line(own, mode, "load", figure), intervals(own, mode, figure, "load"), points(own, mode, "load", figure, { r: 3.6 })]);
  return { x, y, marks: [...marks, tip(known, "load", figure, tell)] };
}

function loadChart() {
  const some = groupRows();
  if (loadsOf(some).length < 2) return null;
  const used = AGAINST_LOAD.filter(([, figure]) => some.some((row) => row[figure] !== null));
  const panels = used.map(([heading, figure, label, format]) => panel(heading, () => againstLoad(some, figure, label, format), { labels: true }));
  return chart("load", "Against the load",
    "Loads below 100 % arrive as a random (Poisson) stream that does not wait for completions, and latencies count from the intended start; 100 % is a closed loop, where they count from the submission.",
    panels, { width: 330 });
}

// Height: one row per mode.
const forestHeight = (some) => 56 + 26 * new Set(some.map((row) => row.name)).size;

// Left margin for names.
const marginFor = (names) => 18 + 6.6 * Math.max(...names.map((name) => name.length));

// Percentiles on a logarithmic axis of nines: 90, 99, 99.9 … are equally spaced.
const nines = (percentile) => 1 / (1 - percentile / 100);
function distributionChart() {
  const some = onePerMode(groupRows()).filter((row) => row.curve.length > 1);
  if (!some.length) return null;
  const curves = some.map((row) => ({ row, points: row.curve.filter(([, ns]) => ns > 0).map(([p, ns]) => ({ row, p, nines: nines(p), ns })) }));
  const all = curves.flatMap((curve) => curve.points);
  const y = scale(all.map((point) => point.ns), "latency", time);
  const ticks = [0, 50, 90, 99, 99.9, 99.99, 99.999].filter((p) => nines(p) <= Math.max(...all.map((point) => point.nines)) * 1.02);
  const x = { type: "log", domain: [1, Math.max(...all.map((point) => point.nines))], label: "percentile", values: ticks.map(nines), tickFormat: (value) => `${+(100 - 100 / value).toFixed(3)}` };
  const panels = loadsOf(some).map((load) => {
    const here = curves.filter((curve) => curve.row.load === load);
    const marks = here.map(({ row, points: own }) => line(own, row.mode, "nines", "ns", { curve: "monotone-x" }));
    const words = ({ row, p, ns }) => `${row.name}\np${+p.toFixed(3)}  ${time(ns)}`;
    return panel(loadWords(load), () => ({ x, y, marks: [...marks, tip(here.flatMap((curve) => curve.points), "nines", "ns", words)] }), { labels: true, height: loadsOf(some).length > 1 ? 240 : 340 });
  });
  return chart("distribution", "Latency distributions",
    "Latency percentiles; each step to the right adds a nine. A line ends where fewer than 20 samples remain.", panels, { width: 290 });
}
