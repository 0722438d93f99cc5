"use strict";
// The data of the page: rows, modes with colours and symbols, groups of scenes.

// Errors are shown on the page, since users do not see the console.
addEventListener("error", (event) => trouble(event.message));
addEventListener("unhandledrejection", (event) => trouble(String(event.reason)));

function trouble(message) {
  const place = document.getElementById("trouble");
  place.hidden = false;
  place.textContent = `A chart of this page failed: ${message}`;
  document.documentElement.dataset.trouble = message;
}

const data = JSON.parse(document.getElementById("data").textContent);

// The colour and symbol of each mode, the same in all charts and pages. The palette can be distinguished by the colour-blind (after Okabe and
// Ito, with darker and lighter steps), for light and for dark; the symbol helps, because twelve colours are hard to distinguish.
const LOOKS = {
  "adaptive": ["#d1400a", "#ff8a4c", "star"],
  "interrupt": ["#0067b1", "#5cb3f5", "circle"],
  "threaded": ["#2a9bd4", "#9fdcff", "square"],
  "irq-poll": ["#00845f", "#2fd6a5", "triangle"],
  "posted": ["#6b8e00", "#b9dc3c", "hexagon"],
  "poll": ["#20242b", "#f2f4f7", "diamond"],
  "hybrid-mean": ["#b8508f", "#f3a6d4", "square2"],
  "hybrid-min": ["#7c1d6f", "#d78bd0", "wye"],
  "suspend": ["#8a6100", "#e0b34d", "cross"],
  "coalesce": ["#a3890a", "#f0e04a", "diamond2"],
  "dim": ["#5b4fc0", "#b6adff", "times"],
  "vic": ["#00808a", "#5fe0e6", "plus"],
};
const SPARE = [["#5f6b7a", "#aab6c4", "circle"], ["#9c3d3d", "#ef9a9a", "square"], ["#3d6b9c", "#8fbdec", "triangle"], ["#4f7a3a", "#a9d490", "diamond"]];

const modes = new Map();

// The mode in a row's name: parameters follow a question mark, as in `adaptive?delay-exponent=2`; `+submit-check` is drawn hollow and dashed.
function modeOf(name) {
  const family = name.split("?")[0];
  if (!modes.has(family)) {
    const plus = family.indexOf("+");
    const base = plus < 0 ? family : family.slice(0, plus);
    const known = Object.hasOwn(LOOKS, base);
    const number = modes.size;
    const [light, dark, symbol] = known ? LOOKS[base] : SPARE[number % SPARE.length];
    modes.set(family, { name: family, number, light, dark, symbol, hollow: plus >= 0, color: `var(--mode-${number})`, shown: true });
  }
  return modes.get(family);
}

// The parameters of a name, and the last one as a number; no limit counts as the largest.
function readKnob(text) {
  const value = text.slice(text.lastIndexOf("=") + 1);
  const share = value === "inf" ? 1e9 : Number.parseFloat(value);
  return { text: text.includes("&") ? text : value, share: Number.isNaN(share) ? 0 : share };
}

const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : null);

// A row with derived figures, in base units: ns, per second, per I/O.
function readRow(row) {
  const mode = modeOf(row.mode);
  const knob = row.mode.includes("?") ? readKnob(row.mode.slice(row.mode.indexOf("?") + 1)) : null;
  const ci = row.ci ?? {};
  const figures = {
    iops: number(row.iops), cpu: number(row.cpu_ns_per_io), thread: number(row.thread_cpu_ns_per_io), stolen: number(row.stolen_ns_per_io), notify: number(row.notify_ns_per_io),
    messages: number(row.messages_per_s), calls: number(row.system_calls_per_io), wakeups: number(row.wakeups_per_s), per_wakeup: number(row.completions_per_wakeup) || null,
    p50: number(row.lat_ns?.p50), p99: number(row.lat_ns?.p99), p999: number(row.lat_ns?.p999), p9999: number(row.lat_ns?.p9999),
    mean: number(row.lat_ns?.mean), max: number(row.lat_ns?.max), drain: number(row.entries_per_drain_max),
  };
  // Per cent of one CPU.
  figures.cores = figures.iops !== null && figures.cpu !== null ? (figures.iops * figures.cpu) / 1e7 : null;
  const intervals = { iops: ci.iops, cpu: ci.cpu_ns_per_io, p50: ci.lat_p50, p99: ci.lat_p99, p999: ci.lat_p999 };
  return {
    ...figures, intervals, mode, knob, name: row.mode, load: row.load_pct, qd: row.qd, profile: row.profile, arrivals: row.arrivals ?? "",
    background: row.background_pct ?? null, costs: row.costs ?? "", valid: row.valid !== false, best: row.recommended === true, split: row.cpu_pct ?? null, curve: row.lat_curve ?? [], paths: row.paths ?? [], raw: row,
  };
}

const rows = data.results.rows.map(readRow);
const timelines = (data.results.timelines ?? []).map((line) => ({ ...line, look: modeOf(line.mode), arrivals: line.arrivals ?? "" }));

// A group: rows that differ only in mode and load.
function groupOf(row) {
  const arrivals = row.arrivals ? `, ${row.arrivals}` : "";
  const background = row.background === null ? "" : `, ${row.background} % of the CPU wanted by another thread`;
  // The price list of a simulated machine.
  const costs = row.costs ? `, ${row.costs}` : "";
  return `${row.profile}, queue depth ${row.qd}${arrivals}${background}${costs}`;
}

const groups = [...new Set(rows.map(groupOf))];

const groupRows = () => rows.filter((row) => groupOf(row) === scenes[state.scene].group && row.mode.shown);
const loadsOf = (some) => [...new Set(some.map((row) => row.load))].sort((a, b) => a - b);

// Charts with one line per mode show one value of a parameter: the default, else the one nearest to 10 %.
function onePerMode(some) {
  const best = new Map();
  const rank = (row) => (row.knob === null ? -1 : Math.abs(Math.log((row.knob.share + 1e-3) / 0.101)));
  for (const row of some) {
    const key = `${row.mode.name} ${row.load}`;
    if (!best.has(key) || rank(row) < rank(best.get(key))) best.set(key, row);
  }
  return [...best.values()];
}

// Formats numbers with three significant digits (more if neighbouring ticks would be equal), and a suitable unit.
const digitsOf = (value, digits = 3) => (Math.abs(value) >= 10 ** digits ? value.toFixed(0) : String(Number(value.toPrecision(digits))));
function scaled(value, steps, digits) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return `0${steps[0][1]}`;
  let [unit, suffix] = steps[0];
  for (const [least, name] of steps) if (value >= least * 0.9995) [unit, suffix] = [least, name];
  return digitsOf(value / unit, digits) + suffix;
}
const time = (ns, digits) => scaled(ns, [[1, " ns"], [1e3, " µs"], [1e6, " ms"], [1e9, " s"]], digits);
const count = (value, digits) => scaled(value, [[1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"]], digits);
const percent = (value, digits) => (value === null ? "–" : `${digitsOf(value, digits)} %`);

// The load of a simulated scenario with a rate is unknown.
function loadWords(load) {
  return load === 100 ? "load 100 %, closed loop" : load > 0 ? `load ${percent(load)}` : "at the rate of the jobs";
}

// Choices of the first chart: the loads of each group, and whether they are inconclusive.
const scenes = d3.groups(rows, groupOf).flatMap(([group, own]) => d3.groups(own, (row) => row.load).map(([load, here]) => {
  const name = d3.groups(own, (row) => row.load).length > 1 ? `${group}, ${loadWords(load)}` : group;
  return { group, load, name: here.every((row) => row.valid) ? name : `${name} (inconclusive)` };
}));

// The first time line is that of adaptive, if there is one; the first scene is the one with the highest load.
const state = { scene: scenes.findLastIndex((scene) => scene.group === groups[0]), line: Math.max(0, timelines.findIndex((line) => line.look.name === "adaptive")) };
