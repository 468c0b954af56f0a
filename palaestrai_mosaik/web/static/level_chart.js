// A chart of levels: points with intervals, side by side for several measures.

import { h } from "preact";
import { COLOURS, Figure } from "web/chart";
import { number } from "web/format";

export const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
/** An interval as text, empty where an end is not known. */
export const between = (low, high) => (known(low) && known(high) ? `[${number(low)}, ${number(high)}]` : "");

const APART = 12, ROOM = 26;

/**
 * A figure of `measures` ([column, name], ...) of each of the `levels`: rows with level, n and lost where they are known,
 * and each column with its `_low` and `_high`. `of` is what is measured, `share` the confidence of the intervals as text.
 */
export function LevelPoints({ title, of, levels, measures, share, counted = "Runs" }) {
  const names = levels.map((row) => row.level);
  const [main] = measures[0];
  return h(Figure, {
    description: `${title}. ${of} with intervals: ${levels.map((row) => `${row.level} ${number(row[main], 3)}`).join(", ")}`,
    height: 90 + (ROOM + APART * (measures.length - 1)) * Math.max(1, names.length),
    options: ({ axis, legend }) => ({
      grid: { left: 12, right: 24, top: 36, bottom: 34, containLabel: true },
      legend: { ...legend, top: 0, data: measures.map(([, name]) => name) },
      tooltip: { trigger: "item", formatter: (item) => {
        const [column, name] = measures.find(([, one]) => one === item.seriesName), row = levels[item.dataIndex];
        return `${row.level}\n${name} ${number(row[column])} ${between(row[`${column}_low`], row[`${column}_high`])} (${share})`;
      } },
      xAxis: { ...axis, type: "value", scale: true, name: of, nameLocation: "middle", nameGap: 26,
        axisLabel: { ...axis.axisLabel, formatter: (value) => number(value, 4) } },
      yAxis: { ...axis, type: "category", inverse: true, data: names, axisLabel: { ...axis.axisLabel, hideOverlap: false, width: 140, overflow: "truncate" } },
      series: measures.map(([column, name], i) => (
        { type: "custom", name, itemStyle: { color: COLOURS[i] }, encode: { x: [1, 2, 3], y: 0 },
          data: levels.map((row, k) => [k, row[column], row[`${column}_low`], row[`${column}_high`]].map((value) => value ?? NaN)),
          renderItem: (params, api) => pointWithInterval(api, i, measures.length) }
      )),
    }),
    numbers: () => ({
      columns: ["Level", counted, "Lost", ...measures.flatMap(([, name]) => [name, "Low", "High"])],
      rows: levels.map((row) => [row.level, row.n, row.lost, ...measures.flatMap(([column]) => [row[column], row[`${column}_low`], row[`${column}_high`]])]),
    }),
  });
}

/** The i-th of `count` points of a level: a circle, of others a square. */
function pointWithInterval(api, i, count) {
  const [place, value, low, high] = [0, 1, 2, 3].map((k) => api.value(k));
  if (Number.isNaN(value)) return null;
  const [x, middle] = api.coord([value, place]), y = middle + (i - (count - 1) / 2) * APART, fill = COLOURS[i];
  /** @type {any[]} */
  const children = [i ? { type: "rect", shape: { x: x - 4, y: y - 4, width: 8, height: 8 }, style: { fill } }
    : { type: "circle", shape: { cx: x, cy: y, r: 5 }, style: { fill } }];
  if (!Number.isNaN(low) && !Number.isNaN(high)) {
    const [x1] = api.coord([low, place]), [x2] = api.coord([high, place]);
    children.push({ type: "line", shape: { x1, y1: y, x2, y2: y }, style: { stroke: fill, lineWidth: 2 } });
  }
  return { type: "group", children };
}
