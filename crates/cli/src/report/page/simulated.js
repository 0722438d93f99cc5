"use strict";
// Charts of what only a simulator knows.

const PARTS = [["hard", "hard interrupts", "#c2571a"], ["soft", "softirqs", "#d9a514"], ["thread", "threads", "#3d7fc4"], ["idle", "idle", "#9aa6b4"]];

// Where the simulated CPUs' time goes, in a single scene.
function splitChart() {
  const some = groupRows().filter((row) => row.split !== null);
  if (!some.length || loadsOf(some).length !== 1) return null;
  const long = some.flatMap((row) => PARTS.map(([part, label, color]) => ({ name: row.name, label, color, value: row.split[part] ?? 0 })));
  const names = some.map((row) => row.name);
  const key = element("p", { class: "key" }, ...PARTS.map(([, label, color]) => element("span", {}, element("i", { style: `background:${color}` }), label)));
  const words = (one) => `${one.name}\n${one.label}  ${percent(one.value)}`;
  const said = some.map((row) => `${row.name}: ${PARTS.map(([part, label]) => `${label} ${percent(row.split[part] ?? 0)}`).join(", ")}`).join("; ");
  const draw = () => ({
    x: { type: "linear", domain: [0, 100], label: "per cent of all CPUs' time", ticks: 5 }, y: { type: "band", domain: names, label: "" }, color: { type: "identity" }, ownAxes: true, marginLeft: marginFor(names), marginTop: 6, said,
    marks: [
      Plot.axisX({ ticks: 5, tickSize: 0, label: null }), Plot.axisY({ fontSize: 12, tickSize: 0, label: null }),
      Plot.barX(long, Plot.stackX({ x: "value", y: "name", fill: "color", z: "label", order: PARTS.map(([, label]) => label), insetTop: 2, insetBottom: 2 })),
      Plot.tip(long, Plot.pointer(Plot.stackX({ x: "value", y: "name", z: "label", order: PARTS.map(([, label]) => label), title: words, fill: "var(--card)", stroke: "var(--line)" }))),
    ],
  });
  return chart("split", "Where the CPUs' time goes", "Hard interrupts and softirqs are taken from whatever thread was running, or from idleness.", [panel("Of all CPUs", draw, { height: forestHeight(some) })], { key, width: 520 });
}

// How far adaptive is from each other mode, over all cells of a sweep.
function regretChart() {
  const all = (data.results.regret ?? []).map((one) => ({ ...one, look: modeOf(one.mode) })).filter((one) => one.look.shown && one.ratio > 0);
  if (!all.length) return null;
  const names = [...new Set(all.map((one) => one.mode))];
  const words = (one) => `against ${one.mode}: × ${one.ratio.toFixed(3)}\n${one.profile}, queue depth ${one.qd}, load ${percent(one.load_pct)}\n${one.costs}, price ${one.latency_price}, ${one.seeds} seeds${one.halves_agree ? "" : " that disagree"}`;
  const said = d3.groups(all, (one) => one.mode).map(([mode, own]) => `${mode} ${d3.extent(own, (one) => one.ratio).map((ratio) => times(ratio)).join(" to ")}`).join(", ");
  const draw = (width) => {
    const x = scale([...all.map((one) => one.ratio), 1, 1.05], "adaptive ÷ the other, the worse of p99 and CPU", times, { ticks: width < 360 ? 3 : 6 });
    return {
      x, y: { type: "band", domain: names, label: "" }, ownAxes: true, marginLeft: marginFor(names), marginTop: 6, said,
      marks: [
        Plot.gridX({ ticks: x.values ?? x.ticks, strokeOpacity: 0.16 }), Plot.axisX({ ticks: x.values ?? x.ticks, tickFormat: x.tickFormat, tickSize: 0, label: null }),
        Plot.axisY({ fontSize: 12, tickSize: 0, label: null }), Plot.ruleX([1], { stroke: "var(--soft)" }), Plot.ruleX([1.05], { stroke: "var(--soft)", strokeDasharray: "3 3" }),
        ...d3.groups(all, (one) => one.look).map(([look, own]) => Plot.tickX(own, { x: "ratio", y: "mode", stroke: look.color, strokeOpacity: 0.55, strokeWidth: 1.4 })),
        tip(all, "ratio", "mode", words),
      ],
    };
  };
  return chart("regret", "Regret: how far adaptive is from each other mode",
    "A tick for each cell of the sweep, all scenes: at the setting of the knob that half of the seeds chose, judged on the other half. Left of the line at 1.00 it is as good in both, or better; left of the dashed one (1.05, the goal) it is no more than 5 % worse in either.", [panel("Over all cells", draw, { height: 56 + 26 * names.length })], { width: 520 });
}
