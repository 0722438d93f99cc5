"use strict";
// Charts of figures that only the simulator has.

const PARTS = [["hard", "hard interrupts", "#c2571a"], ["soft", "softirqs", "#d9a514"], ["thread", "threads", "#3d7fc4"], ["idle", "idle", "#9aa6b4"]];

// Use of the simulated CPUs' time, in a single scene.
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
