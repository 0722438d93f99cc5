"use strict";
// Time lines: behaviour of a mode over time, when the load changes.

// Decisions are not modes, so they have other colours.
const DECISIONS = [["spins", "spin", "#c2571a"], ["naps", "nap (masked, with a timer)", "#d9a514"], ["sleeps", "sleep (armed)", "#3d7fc4"]];
// Parts of the counts above, which only simulated runs have.
const AMONG_THEM = [["gathered", "of the naps, to gather"], ["tried", "stretches of trials"]];

function timelineChart() {
  const lines = timelines.filter((line) => line.look.shown && line.ticks.length > 1);
  if (!lines.length) return null;
  const name = (line) => `${line.mode}: ${groupOf({ ...line, background: line.background_pct ?? null })}`;
  const at = Math.min(Number(state.line), lines.length - 1);
  const chosen = lines[at];
  const ticks = chosen.ticks.map((tick, index) => ({ ...tick, t: (index + 0.5) * chosen.tick_ns / 1e6 }));
  const x = { type: "linear", domain: [0, (ticks.length * chosen.tick_ns) / 1e6], label: "time, ms", tickFormat: (t) => `${t}`, ticks: 6 };
  const key = element("p", { class: "key" }, ...DECISIONS.map(([, label, color]) => element("span", {}, element("i", { style: `background:${color}` }), label)));
  const panels = [throughput(ticks, x, chosen.look), latency(ticks, x, chosen.look), decisions(ticks, x), polls(ticks, x, chosen.look), used(ticks, x, chosen.look)];
  const options = lines.map((line, index) => [String(index), name(line)]);
  const pick = lines.length > 1 ? [choice("Of", options, String(at), (value) => ((state.line = value), redraw()))] : [];
  return chart("timeline", `${chosen.mode}: what it decides when the load changes`,
    `${lines.length > 1 ? "" : `${name(chosen)}. `}All runs laid over each other, in steps of ${time(chosen.tick_ns)}.`, panels.filter((one) => one !== null), { pick, width: 520, key });
}

function throughput(ticks, x, look) {
  const y = scale(ticks.flatMap((tick) => [tick.offered, tick.iops]), "IOPS", count, { zero: true, log: false });
  return panel("Offered (grey) and completed", () => ({
    x, y, marks: [
      Plot.areaY(ticks, { x: "t", y: "offered", fill: "var(--soft)", fillOpacity: 0.22, curve: "step" }), Plot.line(ticks, { x: "t", y: "iops", stroke: look.color, strokeWidth: 1.8 }),
      tip(ticks, "t", "iops", (tick) => `${tick.t.toFixed(1)} ms\noffered  ${count(tick.offered)}\ncompleted  ${count(tick.iops)}`),
    ],
  }), { labels: true, height: 190 });
}

function latency(ticks, x, look) {
  const known = ticks.filter((tick) => tick.p50 > 0 && tick.p99 > 0);
  if (!known.length) return null;
  const y = scale(known.flatMap((tick) => [tick.p50, tick.p99]), "latency", time);
  return panel("Latency: p50 and p99", () => ({
    x, y, marks: [
      Plot.areaY(known, { x: "t", y1: "p50", y2: "p99", fill: look.color, fillOpacity: 0.14 }), Plot.line(known, { x: "t", y: "p50", stroke: look.color, strokeWidth: 2 }),
      Plot.line(known, { x: "t", y: "p99", stroke: look.color, strokeWidth: 1.2, strokeDasharray: "4 3" }),
      tip(known, "t", "p99", (tick) => `${tick.t.toFixed(1)} ms\np50  ${time(tick.p50)}\np99  ${time(tick.p99)}`),
    ],
  }), { labels: true, height: 190 });
}

function decisions(ticks, x) {
  const long = ticks.flatMap((tick) => DECISIONS.map(([figure, label, color]) => ({ t: tick.t, label, color, value: tick[figure], tick })));
  if (!long.some((one) => one.value > 0)) return null;
  const y = scale(ticks.map((tick) => d3.sum(DECISIONS, ([figure]) => tick[figure])), "decisions per second", count, { zero: true, log: false });
  const known = [...DECISIONS, ...AMONG_THEM.filter(([figure]) => ticks.some((tick) => tick[figure] !== undefined))];
  const words = (tick) => [`${tick.t.toFixed(1)} ms`, ...known.map(([figure, label]) => `${label}  ${count(tick[figure])}/s`)].join("\n");
  return panel("How it waits", () => ({
    x, y, color: { type: "identity" }, marks: [
      Plot.areaY(long, Plot.stackY({ x: "t", y: "value", fill: "color", z: "label", curve: "step", order: DECISIONS.map(([, label]) => label) })),
      tip(ticks, "t", (tick) => d3.sum(DECISIONS, ([figure]) => tick[figure]), words),
    ],
  }), { labels: true, height: 190 });
}

function polls(ticks, x, look) {
  if (!ticks.some((tick) => tick.polls > 0)) return null;
  const y = scale(ticks.map((tick) => tick.polls), "polls per second", count, { zero: true, log: false });
  return panel("Polls of the completion queue; empty ones dashed", () => ({
    x, y, marks: [
      Plot.line(ticks, { x: "t", y: "polls", stroke: look.color, strokeWidth: 1.8 }), Plot.line(ticks, { x: "t", y: "empty_polls", stroke: look.color, strokeDasharray: "4 3" }),
      tip(ticks, "t", "polls", (tick) => `${tick.t.toFixed(1)} ms\npolls  ${count(tick.polls)}/s\nempty  ${count(tick.empty_polls)}/s`),
    ],
  }), { labels: true, height: 190 });
}

function used(ticks, x, look) {
  const y = { type: "linear", domain: [0, Math.max(100, ...ticks.map((tick) => tick.cpu * 100))], label: "per cent of one CPU", tickFormat: (value) => `${value}`, ticks: 4 };
  const share = (tick) => tick.cpu * 100;
  return panel("CPU", () => ({
    x, y, marks: [
      Plot.areaY(ticks, { x: "t", y: share, fill: look.color, fillOpacity: 0.16 }), Plot.line(ticks, { x: "t", y: share, stroke: look.color, strokeWidth: 1.8 }),
      tip(ticks, "t", share, (tick) => `${tick.t.toFixed(1)} ms\nCPU  ${percent(share(tick))}`),
    ],
  }), { labels: true, height: 190 });
}
