"use strict";
// The charts of rows. Each function makes one from the rows of the chosen group, or nothing where there is nothing to draw.

const TAILS = [["p50", "p50"], ["p99", "p99"], ["p999", "p99.9"]];
const tailName = (figure) => TAILS.find(([name]) => name === figure)[1];
// A simulated scenario with a rate of its own has no load that is known.
const loadWords = (load) => (load === 100 ? "load 100 %, closed loop" : load > 0 ? `load ${percent(load)}` : "at the rate of the jobs");

const byMode = (some, make) => d3.groups(some, (row) => row.mode).flatMap(([mode, own]) => make(own, mode));

const POOLED = "Latencies are percentiles of all blocks (or seeds) together, the others medians; an interval takes six.";

// The lower envelope: rows than which no other is both cheaper and sooner.
function front(some, x, y) {
  const sorted = [...some].sort((a, b) => a[x] - b[x] || a[y] - b[y]);
  return sorted.filter((row, at) => sorted.slice(0, at).every((other) => other[y] > row[y]));
}

function planeChart() {
  const tails = TAILS.filter(([figure]) => groupRows().some((row) => row.cpu !== null && row[figure] !== null));
  if (!tails.length) return null;
  const figure = tails.some(([name]) => name === state.tail) ? state.tail : tails[0][0];
  const some = groupRows().filter((row) => row.cpu !== null && row[figure] !== null);
  const loads = loadsOf(some);
  const x = (of) => scale(of.flatMap((row) => withInterval(row, "cpu")), "CPU per I/O", time, { ticks: 4 });
  const y = (of) => scale(of.flatMap((row) => withInterval(row, figure)), `${tailName(figure)} latency`, time);
  const panels = loads.map((load) => {
    const here = some.filter((row) => row.load === load);
    const scope = state.axes === "own" ? here : some;
    return panel(loadWords(load), () => ({ x: x(scope), y: y(scope), marks: planeMarks(here, figure) }), { labels: true, height: loads.length > 1 ? 260 : 400 });
  });
  const pick = tails.length > 1 ? [choice("Latency", tails, figure, (tail) => ((state.tail = tail), redraw()))] : [];
  if (loads.length > 1) pick.push(choice("Axes", [["own", "each panel its own"], ["same", "the same in all"]], state.axes, (axes) => ((state.axes = axes), redraw())));
  const knob = some.some((row) => row.knob !== null) ? " A line joins the settings of a mode's parameter." : "";
  return chart("plane", `CPU against ${tailName(figure)}: what each mode buys`,
    `Each point is a mode; left is cheaper, down is sooner. Bars are 95 % intervals; the grey steps join the modes that no other beats in both.${knob}`,
    panels, { pick, width: 270 });
}

function planeMarks(here, figure) {
  const best = front(here, "cpu", figure);
  const steps = Plot.line(best, { x: "cpu", y: figure, curve: "step-after", stroke: "var(--soft)", strokeOpacity: 0.45, strokeWidth: 5, strokeLinejoin: "round" });
  const marks = byMode(here, (own, mode) => {
    const knob = own.filter((row) => row.knob !== null).sort((a, b) => a.knob.share - b.knob.share);
    const curve = knob.length > 1 ? [line(knob, mode, "cpu", figure, { strokeWidth: 1.6, strokeOpacity: 0.8 })] : [];
    // Its ends are labelled; the others tell when they are pointed at.
    const ends = knob.length > 1 ? [knob[0], knob.at(-1)] : [];
    return [...curve, intervals(own, mode, "cpu", figure, { lying: true }), intervals(own, mode, figure, "cpu"), points(own, mode, "cpu", figure, { r: 5 }),
      Plot.text(ends, { x: "cpu", y: figure, text: (row) => row.knob.text, dy: -11, fill: mode.color, fontSize: 10, stroke: "var(--card)", strokeWidth: 3 })];
  });
  return [...(best.length > 1 ? [steps] : []), ...marks, tip(here, "cpu", figure, tell)];
}

// Figures against the load: what, heading, unit, and whether it starts at nothing.
const AGAINST_LOAD = [
  ["throughput", "Throughput", "iops", "IOPS", count], ["cpu", "CPU per I/O", "cpu", "CPU per I/O", time],
  ["cores", "CPU in all", "cores", "per cent of one CPU", percent], ["p50", "Median latency", "p50", "p50", time], ["p99", "p99 latency", "p99", "p99", time],
  ["p999", "p99.9 latency", "p999", "p99.9", time], ["stolen", "Stolen from other work", "stolen", "per I/O", time], ["messages", "Messages from the device", "messages", "per second", count],
];

// A square root keeps low loads apart without hiding the high ones.
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
  const used = AGAINST_LOAD.filter(([, , figure]) => some.some((row) => row[figure] !== null));
  const panels = used.map(([, heading, figure, label, format]) => panel(heading, () => againstLoad(some, figure, label, format), { labels: true }));
  return chart("load", "Against the load",
    "Loads below 100 % arrive as a random (Poisson) stream that does not wait for completions, and latencies count from the intended start; 100 % is a closed loop, where they count from the submission.",
    panels, { width: 330 });
}

function wakeupChart() {
  const some = groupRows().filter((row) => row.per_wakeup > 0);
  if (!some.length) return null;
  const words = "How many completions a thread finds each time that it is woken: 1 is a wake-up for each I/O. A mode that never sleeps or naps has none, and is not drawn.";
  const one = loadsOf(groupRows()).length < 2
    ? panel("Completions per wake-up", (width) => forest(some, "per_wakeup", digitsOf, width), { height: forestHeight(some) })
    : panel("Completions per wake-up, against the load", () => againstLoad(some, "per_wakeup", "completions", count), { labels: true, height: 280 });
  return chart("wakeups", "Completions per wake-up", words, [one], { width: 520 });
}

const forestHeight = (some) => 56 + 26 * new Set(some.map((row) => row.name)).size;

// One figure of each mode, one below the other, with its interval. `middle`: a value to compare with.
function forest(some, figure, format, width, { middle = null } = {}) {
  const names = [...new Set(some.map((row) => row.name))];
  const x = scale([...some.flatMap((row) => withInterval(row, figure)), middle], "", format, { ticks: width < 360 ? 3 : 4 });
  const own = { fontSize: 12, tickSize: 0, label: null };
  x.values ??= ticksWithin(x, width - marginFor(names) - 20);
  const marks = [
    Plot.gridX({ ticks: x.values, strokeOpacity: 0.16 }), Plot.axisX({ ticks: x.values, tickFormat: x.tickFormat, tickSize: 0, label: null }), Plot.axisY(own),
    Plot.ruleY(names, { stroke: "var(--line)", strokeOpacity: 0.7 }), ...(middle === null ? [] : [Plot.ruleX([middle], { stroke: "var(--soft)", strokeDasharray: "3 3" })]),
    ...byMode(some, (rows, mode) => [intervals(rows, mode, figure, "name", { lying: true }), points(rows, mode, figure, "name", { r: 5 })]),
    tip(some, figure, "name", (row) => row.words ?? tell(row)),
  ];
  const said = some.map((row) => `${row.name} ${format(row[figure])}`).join(", ");
  return { x, y: { type: "point", domain: names, label: "" }, marks, ownAxes: true, marginLeft: marginFor(names), marginTop: 6, said };
}

// Room for names left of a chart.
const marginFor = (names) => 18 + 6.6 * Math.max(...names.map((name) => name.length));

// Without loads: each figure by itself.
function figuresChart() {
  const some = groupRows();
  if (loadsOf(some).length !== 1) return null;
  const wanted = [["iops", "Throughput, IOPS", count], ["cpu", "CPU per I/O", time], ["stolen", "Stolen from other work, per I/O", time], ["p50", "Median latency", time],
    ["p99", "p99 latency", time], ["p999", "p99.9 latency", time]];
  const panels = wanted.filter(([figure]) => some.some((row) => row[figure] !== null)).map(([figure, heading, format]) => {
    const known = some.filter((row) => row[figure] !== null);
    return panel(heading, (width) => forest(known, figure, format, width), { height: forestHeight(known) });
  });
  return panels.length ? chart("figures", "Figure by figure", `The value of each mode and its 95 % interval. ${POOLED}`, panels, { width: 380 }) : null;
}

// Ratios to the first mode, block against block of the same round.
function ratioChart() {
  const loads = loadsOf(groupRows());
  if (loads.length !== 1) return null;
  const first = groupRows()[0];
  const here = (pair) => pair.a === first.name && groupOf({ ...pair, arrivals: pair.arrivals ?? "", background: pair.background_pct ?? null }) === state.group && pair.load_pct === first.load;
  const name = { iops: "IOPS", cpu_ns_per_io: "CPU per I/O", lat_p50: "Median latency" };
  const pairs = (data.results.pairs ?? []).filter(here).map((pair) => {
    const row = { name: pair.b, mode: modeOf(pair.b.replace(/ \(A\/A\)$/, "")), figure: pair.figure, ratio: pair.ratio, intervals: { ratio: pair.ci } };
    const between = pair.ci ? `  (${pair.ci[0].toFixed(3)} – ${pair.ci[1].toFixed(3)})` : "";
    row.words = `${pair.b} ÷ ${pair.a}\n${name[pair.figure] ?? pair.figure}  × ${pair.ratio.toFixed(3)}${between}`;
    return row;
  }).filter((row) => row.mode.shown);
  if (!pairs.length) return null;
  const panels = d3.groups(pairs, (row) => row.figure).map(([figure, own]) =>
    panel(`${name[figure] ?? figure} ÷ ${first.name}'s`, (width) => forest(own, "ratio", times, width, { middle: 1 }), { height: forestHeight(own) }));
  const live = pairs.some((row) => row.name.endsWith(" (A/A)"));
  const words = live
    ? `Ratios of blocks that ran next to each other, their median and 95 % interval. The line marked (A/A) is ${first.name} against itself: as much is noise.`
    : "Ratios seed by seed, their median and 95 % interval.";
  return chart("ratios", `Compared with ${first.name}, ${live ? "round by round" : "seed by seed"}`, words, panels, { width: 380 });
}

// Percentiles on an axis of nines: each tenth of what is left is as wide as the one before.
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
    "Which latency so many per cent of the I/Os do not exceed; towards the right each step is another nine. A line ends where fewer than 20 samples are left.", panels, { width: 290 });
}
