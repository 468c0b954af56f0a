// An outcome against a factor: a point for each run that has finished.

import { batch } from "@preact/signals";
import { h } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { COLOURS, colour, Figure } from "web/chart";
import { has } from "web/data";
import { number } from "web/format";
import { extent, text } from "web/views/design_model";

// steps of the golden ratio spread points evenly over the width of a level, and always in the same way
const GOLDEN = 0.6180339887498949, WIDTH = 0.6;
const jitter = (cell) => (((cell * GOLDEN) % 1) - 0.5) * WIDTH;

const across = (factor, cell) => factor.value(cell) + (factor.levels ? jitter(cell) : 0);

/** The cells of finished runs that have a point. */
export function drawable(model, factor, outcome) {
  return model.executed().filter((cell) => Number.isFinite(across(factor, cell)) && Number.isFinite(outcome.value(cell)));
}

/** The axis of a chart for an axis of the model: numbers, logarithms, or places of levels with their names. */
export function chartAxis(axis, cells, base) {
  // outcomes get round ends, factors those that they have
  const [low, high] = axis.kind === "outcome" ? [] : extent(axis, cells);
  const named = (value) => (value > low && value < high ? text(axis, value) : "");
  const label = (value) => (axis.levels ? named(value) : number(value, 3));
  return {
    ...base, axisLine: { ...base.axisLine, onZero: false }, type: axis.log ? "log" : "value", min: low, max: high, scale: true, interval: axis.levels ? 1 : undefined,
    axisLabel: { ...base.axisLabel, formatter: label, overflow: "truncate", width: 90 },
  };
}

/** The figure of the outcome against a factor, in which runs can be selected; `selecting` lets the pointer draw a rectangle. */
export function Scatter({ model, selection, factor, outcome, selecting }) {
  const chart = useRef(null), own = useRef(false), latest = useRef(selecting);
  latest.current = selecting;
  useEffect(() => chart.current?.dispatchAction({ type: "takeGlobalCursor", key: "brush",
    brushOption: { brushType: selecting ? "rect" : false, brushMode: "single" } }), [selecting]);

  function points() {
    return drawable(model, factor, outcome());
  }
  function options({ axis }) {
    const cells = points();
    const size = cells.length <= 100 ? 9 : cells.length <= 1500 ? 6 : 4;
    const series = (name, some, style) => ({ type: "scatter", id: name, name, symbolSize: size, itemStyle: style, progressive: 4000,
      data: some.map((cell) => ({ value: [across(factor, cell), outcome().value(cell)], cell })) });
    const chosen = selection.isEmpty() ? cells : cells.filter(selection.has);
    const others = selection.isEmpty() ? [] : cells.filter((cell) => !selection.has(cell));
    return {
      grid: { left: 12, right: 24, top: 36, bottom: 34, containLabel: true },
      legend: { show: false },
      // (the button above the chart begins a selection)
      toolbox: { show: false },
      brush: { xAxisIndex: 0, yAxisIndex: 0, brushMode: "single", throttleType: "debounce", throttleDelay: 100,
        inBrush: {}, outOfBrush: {}, brushStyle: { borderColor: colour("link"), color: "rgba(60,120,200,.15)", borderWidth: 1 } },
      tooltip: { trigger: "item", formatter: (item) => [model.name(item.data.cell), ...model.values(item.data.cell),
        `${outcome().name} = ${number(outcome().value(item.data.cell), 6)}`].join("\n") },
      xAxis: { ...chartAxis(factor, cells, axis), name: factor.name, nameLocation: "middle", nameGap: 26 },
      yAxis: { ...axis, axisLine: { ...axis.axisLine, onZero: false }, type: "value", scale: true, name: outcome().name, nameTextStyle: { ...axis.nameTextStyle, align: "left" },
        axisLabel: { ...axis.axisLabel, formatter: (value) => number(value, 4) } },
      series: [series("other runs", others, { color: colour("quiet"), opacity: 0.25 }), series("runs", chosen, { color: COLOURS[0], opacity: 0.75 })],
    };
  }
  function numbers() {
    const repeated = model.facts.repetitions > 1;
    return {
      columns: ["Row", ...(repeated ? ["Repetition"] : []), "Run", factor.name, outcome().name],
      rows: points().map((cell) => [model.row(cell), ...(repeated ? [model.repetition(cell)] : []), model.uidOf(cell),
        factor.levels ? text(factor, factor.value(cell)) : factor.value(cell), outcome().value(cell)]),
    };
  }

  // a rectangle becomes a range of the factor and one of the outcome; of levels, those whose points it touches
  function take(areas) {
    const [x, y] = areas[0]?.coordRange ?? [null, null], ordered = (ends) => [Math.min(...ends), Math.max(...ends)];
    const range = x && ordered(x);
    if (range && factor.levels) [range[0], range[1]] = [Math.ceil(range[0] - WIDTH / 2), Math.floor(range[1] + WIDTH / 2)];
    batch(() => {
      selection.set(factor.key, range ? [range] : []);
      selection.set(outcome().key, y ? [ordered(y)] : []);
    });
  }
  function created(made) {
    chart.current = made;
    made.on("click", (item) => {
      const instance = item.data?.cell === undefined || latest.current ? null : model.instanceOf(item.data.cell);
      if (instance !== null && has(`run/${instance}`)) location.hash = `#/run/${encodeURIComponent(instance)}`;
    });
    // while it is drawn, the rectangle belongs to the chart
    made.on("brush", (event) => !own.current && event.$from === undefined && event.areas && take(event.areas));
    made.on("brushEnd", (event) => !own.current && take(event.areas));
  }
  /** Remove the rectangle where the selection is not its any more. */
  function drawn(made) {
    if (!made.getOption().brush?.[0] || selection.get(factor.key).length || selection.get(outcome().key).length) return;
    own.current = true;
    made.dispatchAction({ type: "brush", areas: [] });
    own.current = false;
  }
  return h(Figure, {
    title: `${factor.name} and ${outcome().name}`,
    description: `Scatter plot: ${outcome().name} of each run that has finished, against ${factor.name}`,
    height: 340, options, numbers, created, drawn,
  });
}
