// Curves over episodes, as figures: those of one run, or of several overlaid.

import { colour, figure } from "web/chart";
import { fill } from "web/dom";

/** Where each phase begins on an axis on which phases stand one behind the other: {number: first place}. */
export function starts(curves) {
  const lengths = new Map();
  for (const one of curves) {
    lengths.set(one.phase, Math.max(lengths.get(one.phase) ?? 0, (one.x.at(-1) ?? 0) + (one.evaluation ? 0 : 1)));
  }
  const found = new Map();
  let total = 0;
  for (const phase of [...lengths.keys()].sort((a, b) => a - b)) {
    found.set(phase, total);
    total += lengths.get(phase);
  }
  return found;
}

/** Curves by what they show: [{title, curves}], the objective first. */
export function groups(curves) {
  const found = new Map();
  for (const one of curves) {
    const title = one.kind === "objective" ? "Objective" : one.kind === "reward" ? `Reward ${one.name}` : `Statistic ${one.name}`;
    if (!found.has(title)) found.set(title, { title, curves: [] });
    found.get(title).curves.push(one);
  }
  return [...found.values()];
}

/**
 * A figure of curves. `lines()` returns [{label, curve, look}], where a label that occurs again continues its line in the
 * next phase; `fold()` is "mean" or "sum"; `phases()` are [{phase, name}].
 */
export function curveFigure({ title, lines, fold, phases, height = 300 }) {
  function points({ curve }, begin) {
    return Array.from(curve.x, (x, i) => [begin.get(curve.phase) + x, curve[fold()][i]]);
  }
  function options({ axis }) {
    const shown = lines(), begin = starts(shown.map((one) => one.curve)), names = new Map(phases().map((one) => [one.phase, one.name]));
    const series = [], merged = new Map();
    for (const one of shown) {
      const label = one.curve.evaluation ? `${one.label} (evaluation)` : one.label;
      if (!merged.has(label)) merged.set(label, { ...one, data: [] });
      const own = merged.get(label);
      // (a point without a value interrupts the line between two phases)
      if (own.data.length) own.data.push([own.data.at(-1)[0] + 0.5, null]);
      own.data.push(...points(one, begin));
    }
    for (const [label, one] of merged) {
      const single = one.data.length === 1;
      series.push({ name: label, type: one.curve.evaluation ? "scatter" : "line", data: one.data, symbol: one.curve.evaluation ? "diamond" : "circle",
        symbolSize: one.curve.evaluation ? 9 : 6, showSymbol: single || one.data.length <= 40, lineStyle: { width: 1.6, type: one.look.type },
        itemStyle: { color: one.look.color } });
    }
    if (begin.size > 1 && series.length) {
      series[0].markLine = { silent: true, symbol: "none", lineStyle: { color: colour("quiet"), type: "dashed" }, label: { color: colour("quiet"),
        formatter: ({ data }) => data.name, position: "insideEndTop" },
      data: [...begin].map(([phase, place]) => ({ xAxis: place - 0.5, name: names.get(phase) ?? String(phase) })) };
    }
    return { grid: { left: 64, right: 20, top: 34, bottom: 64 }, xAxis: { ...axis, type: "value", name: "episode", nameLocation: "middle",
      nameGap: 24, minInterval: 1, scale: true }, yAxis: { ...axis, type: "value", scale: true, name: fold() === "mean" ? "mean of an episode"
      : "sum of an episode", nameTextStyle: { ...axis.nameTextStyle, align: "left" } }, legend: { type: "scroll", top: 0, right: 0, left: "35%",
      textStyle: { color: colour("text") }, pageTextStyle: { color: colour("quiet") } },
    tooltip: { trigger: "axis", renderMode: "richText", backgroundColor: colour("raised"), borderColor: colour("line"),
      textStyle: { color: colour("text"), fontSize: 12 } },
    dataZoom: [{ type: "inside" }, { type: "slider", height: 18, bottom: 6 }], series };
  }
  function numbers() {
    const names = new Map(phases().map((one) => [one.phase, one.name]));
    const rows = lines().flatMap(({ label, curve }) => Array.from(curve.x, (x, i) => [names.get(curve.phase) ?? String(curve.phase), label,
      curve.evaluation ? "evaluation" : "episode", x, curve.mean[i], curve.sum[i]]));
    return { columns: ["phase", "curve", "kind", "episode", "mean", "sum"], rows: rows.slice(0, 4000) };
  }
  const made = figure({ title, description: `${title} by episode`, height, options, numbers });
  const caption = made.element.querySelector("figcaption");
  return { ...made, update(again) {
    const thin = lines().find(({ curve }) => curve.episodes > curve.x.length);
    fill(caption, title, thin && ` (${thin.curve.episodes.toLocaleString("en")} episodes, of which ${thin.curve.x.length.toLocaleString("en")} `
      + "with all extremes are drawn)");
    if (again) made.refresh(); else made.update();
  } };
}
