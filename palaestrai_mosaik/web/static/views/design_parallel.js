// Parallel coordinates: a line for each run that has finished, over its factors and outcomes.

import { h } from "preact";
import { useRef } from "preact/hooks";
import { colour, Figure } from "web/chart";
import { has } from "web/data";
import { number } from "web/format";
import { extent, text } from "web/views/design_model";
import { chartAxis } from "web/views/design_scatter";

/** from low to high; these differ in lightness, too */
const SCALE = ["#3b2f7d", "#2f6f9f", "#2a9d8f", "#8cc152", "#f2c14e"];
const HEIGHT = 396, LEAST = 74;
/** characters of a line of a name */
const LINE = 12;

/** A name in up to three lines, so that it has room above its axis; it is divided behind "_", ".", "-" and spaces. */
function wrapped(name) {
  const lines = [""];
  for (const part of name.split(/(?<=[_.\- ])/)) {
    if (lines.at(-1) && lines.length < 3 && (lines.at(-1) + part).length > LINE) lines.push("");
    lines[lines.length - 1] += part;
  }
  return lines.join("\n");
}

/** The figure whose axes select runs; lines are coloured by the outcome that `outcome()` returns. */
export function Parallel({ model, selection, outcome }) {
  const own = useRef(false);
  const data = () => model.executed().map((cell) => ({ value: model.axes().map((axis) => axis.value(cell)), cell }));

  function options({ axis, tooltip }) {
    const axes = model.axes(), cells = model.executed();
    const coloured = axes.indexOf(outcome());
    const [low, high] = extent(outcome(), cells);
    const few = cells.length <= 60;
    return {
      legend: { show: false },
      tooltip: { ...tooltip, trigger: "item", formatter: (item) => (item.data?.cell === undefined ? "" : [model.name(item.data.cell),
        ...axes.map((one) => `${one.name} = ${text(one, one.value(item.data.cell))}`)].join("\n")) },
      parallel: { left: 40, right: 50, top: 60, bottom: 64, parallelAxisDefault: { areaSelectStyle: { width: 18, opacity: 0.3, color: colour("link"),
        borderColor: colour("link") } } },
      parallelAxis: axes.map((one, i) => parallelAxis(chartAxis(one, cells, axis), one, i)),
      visualMap: { type: "continuous", dimension: coloured, min: low, max: high, inRange: { color: SCALE }, calculable: false, orient: "horizontal",
        left: "center", bottom: 6, itemWidth: 14, itemHeight: 160, text: [number(high, 4), `${outcome().name}  ${number(low, 4)}`],
        textStyle: { color: colour("quiet") } },
      series: [{ type: "parallel", id: "runs", smooth: 0.05, data: data(), inactiveOpacity: 0.04, activeOpacity: few ? 0.95 : 0.7, progressive: 2000,
        lineStyle: { width: few ? 1.6 : 1, opacity: few ? 0.9 : 0.5 } }],
    };
  }
  // (lines cross the labels of an axis: they get a border of the background)
  function parallelAxis(common, one, i) {
    return {
      ...common, dim: i, id: one.key, name: wrapped(one.name), realtime: false,
      nameTruncate: { maxWidth: 90 }, nameTextStyle: { color: colour("text"), lineHeight: 13 },
      splitLine: { show: false }, axisLine: { lineStyle: { color: colour("text"), width: 1.5 } },
      axisLabel: { ...common.axisLabel, color: colour("text"), textBorderColor: colour("raised"), textBorderWidth: 3 },
    };
  }
  function numbers() {
    const axes = model.axes();
    return {
      columns: ["Row", ...(model.facts.repetitions > 1 ? ["Repetition"] : []), "Run", ...axes.map((one) => one.name)],
      rows: model.executed().map((cell) => [model.row(cell), ...(model.facts.repetitions > 1 ? [model.repetition(cell)] : []), model.uidOf(cell),
        ...axes.map((one) => (one.levels || (one.kind === "factor" && Number.isNaN(one.value(cell))) ? text(one, one.value(cell)) : one.value(cell)))]),
    };
  }
  function drawn(chart) {
    own.current = true;
    for (const axis of model.axes()) {
      const intervals = selection.get(axis.key), ends = extent(axis, model.executed());
      const within = intervals.map(([low, high]) => [Math.max(low, ends[0]), Math.min(high, ends[1])]);
      // the ends of a level are drawn around it
      const around = axis.levels ? within.map(([low, high]) => (low === high ? [low - 0.3, high + 0.3] : [low, high])) : within;
      chart.dispatchAction({ type: "axisAreaSelect", parallelAxisId: axis.key, intervals: around });
    }
    own.current = false;
  }
  function created(chart) {
    chart.on("axisareaselected", (event) => !own.current && selection.set(event.parallelAxisId, event.intervals));
    chart.on("click", (item) => {
      const instance = item.data?.cell === undefined ? null : model.instanceOf(item.data.cell);
      if (instance !== null && has(`run/${instance}`)) location.hash = `#/run/${encodeURIComponent(instance)}`;
    });
  }
  return h(Figure, {
    title: "All factors and outcomes", class: "design-parallel", width: 90 + LEAST * model.axes().length, height: HEIGHT,
    description: `Parallel coordinates: a line for each run that has finished, coloured by ${outcome().name}; drag along an axis to select runs`,
    options, numbers, created, drawn,
  });
}
