// Curves over episodes, as figures: those of one run, or of several overlaid.

import { band, described } from "web/bands";
import { colour, figure } from "web/chart";
import { fill, h } from "web/dom";

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

const value = (one) => (Number.isFinite(one) ? one : null);

/**
 * A figure of curves. `lines()` returns [{label, curve, look}], where a label that occurs again continues its line in the
 * next phase; `fold()` is "mean" or "sum"; `phases()` are [{phase, name}].
 */
export function curveFigure({ title, lines, fold, phases, height = 300 }) {
  const columns = () => (fold() === "mean" ? ["mean", "low", "high"] : ["sum", "sum_low", "sum_high"]);

  /** Lines by their labels, phases one behind the other: [{label, one, data: [[x, value, lowest, highest]], over}]. */
  function merge() {
    const shown = lines(), begin = starts(shown.map((one) => one.curve)), merged = new Map();
    for (const one of shown) {
      const { curve } = one, label = curve.evaluation ? `${one.label} (evaluation)` : one.label;
      if (!merged.has(label)) merged.set(label, { label, one, data: [], over: null });
      const own = merged.get(label), [middle, low, high] = columns().map((name) => curve[name]);
      own.over ??= curve.over;
      // (a point without a value interrupts the line between two phases)
      if (own.data.length) own.data.push([own.data.at(-1)[0] + 0.5, null, null, null]);
      for (let i = 0; i < curve.x.length; i += 1) {
        own.data.push([begin.get(curve.phase) + curve.x[i], value(middle[i]), value(low?.[i]), value(high?.[i])]);
      }
    }
    return { begin, merged: [...merged.values()] };
  }
  function options({ axis }) {
    const { begin, merged } = merge(), names = new Map(phases().map((one) => [one.phase, one.name]));
    const series = [];
    for (const { label, one, data, over } of merged) {
      const { evaluation } = one.curve, common = { itemStyle: { color: one.look.color } };
      series.push({ ...common, name: label, id: label, type: evaluation ? "scatter" : "line", data: data.map(([x, y]) => [x, y]),
        symbol: evaluation ? "diamond" : "circle", symbolSize: evaluation ? 9 : 6, showSymbol: data.length === 1 || data.length <= 40,
        lineStyle: { width: 1.6, type: one.look.type } });
      if (over) series.push(...band(label, data, one.look.color));
    }
    if (begin.size > 1 && series.length) {
      series[0].markLine = { silent: true, symbol: "none", lineStyle: { color: colour("quiet"), type: "dashed" }, label: { color: colour("quiet"),
        formatter: ({ data }) => data.name, position: "insideEndTop" },
      data: [...begin].map(([phase, place]) => ({ xAxis: place - 0.5, name: names.get(phase) ?? String(phase) })) };
    }
    // (a band is switched with its line)
    const legend = merged.map(({ label }) => label);
    return { grid: { left: 64, right: 20, top: 34, bottom: 64 }, xAxis: { ...axis, type: "value", name: "episode", nameLocation: "middle",
      nameGap: 24, minInterval: 1, scale: true }, yAxis: { ...axis, type: "value", scale: true, name: fold() === "mean" ? "mean of an episode"
      : "sum of an episode", nameTextStyle: { ...axis.nameTextStyle, align: "left" } }, legend: { data: legend, type: "scroll", top: 0, right: 0, left: "35%",
      textStyle: { color: colour("text") }, pageTextStyle: { color: colour("quiet") } },
    tooltip: { trigger: "axis", renderMode: "richText", backgroundColor: colour("raised"), borderColor: colour("line"),
      textStyle: { color: colour("text"), fontSize: 12 }, formatter: (found) => described(merged, found) },
    dataZoom: [{ type: "inside" }, { type: "slider", height: 18, bottom: 6 }], series };
  }
  function numbers() {
    const names = new Map(phases().map((one) => [one.phase, one.name])), shown = lines();
    const banded = shown.some(({ curve }) => curve.over), [, low, high] = columns();
    const rows = shown.flatMap(({ label, curve }) => Array.from(curve.x, (x, i) => [names.get(curve.phase) ?? String(curve.phase), label,
      curve.evaluation ? "evaluation" : "episode", x, curve.mean[i], curve.sum[i],
      ...(banded ? [value(curve[low]?.[i]) ?? "–", value(curve[high]?.[i]) ?? "–"] : [])]));
    return { columns: ["phase", "curve", "kind", "episode", "mean", "sum", ...(banded ? [`lowest ${fold()}`, `highest ${fold()}`] : [])],
      rows: rows.slice(0, 4000) };
  }
  const made = figure({ title, description: `${title} by episode`, height, options, numbers });
  const caption = made.element.querySelector("figcaption");
  return { ...made, update(again) {
    const shown = lines(), thin = shown.find(({ curve }) => curve.episodes > curve.x.length);
    const over = [...new Set(shown.map(({ curve }) => curve.over).filter(Boolean))];
    const notes = [over.length > 0 && `mean over ${over.join(" or ")}; band: lowest to highest`,
      thin && `${thin.curve.episodes.toLocaleString("en")} episodes, of which ${thin.curve.x.length.toLocaleString("en")} with all extremes are drawn`];
    fill(caption, title, notes.filter(Boolean).map((one) => h("span", { class: "quiet" }, ` (${one})`)));
    if (again) made.refresh(); else made.update();
  } };
}
