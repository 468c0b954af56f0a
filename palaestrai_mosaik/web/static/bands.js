// Bands around lines over episodes, from the lowest to the highest value of several workers or bodies.
// Rows are [place, value, lowest, highest], null where there is none.

import { number } from "web/format";

const MOST_LINES = 14;

/** The series of the band of a line, with its name, so that the legend switches both. */
export function band(label, rows, color) {
  const heights = [(row) => row[2], (row) => (row[2] === null || row[3] === null ? null : row[3] - row[2])];
  // one above the other: an invisible line, and what lies between it and the next
  const areas = heights.map((height, k) => ({ id: `${label}/${k}`, name: label, type: "line", stack: label, stackStrategy: "all", silent: true,
    symbol: "none", z: 1, data: rows.map((row) => [row[0], height(row)]), itemStyle: { color }, lineStyle: { width: 0 },
    areaStyle: k ? { color, opacity: 0.18, origin: "auto" } : null }));
  return [...areas, whiskers(label, rows, color)];
}

/** Upright lines from the lowest to the highest value where a point has no neighbour: an area would not be seen there. */
function whiskers(label, rows, color) {
  const low = (i) => rows[i]?.[2] ?? null;
  const alone = rows.filter((_, i) => low(i) !== null && low(i - 1) === null && low(i + 1) === null);
  return { id: `${label}/whiskers`, name: label, type: "custom", silent: true, itemStyle: { color }, encode: { x: 0, y: [1, 2] },
    data: alone.map(([x, , from, to]) => [x, from, to]), renderItem: (_, api) => {
      const [x, y1] = api.coord([api.value(0), api.value(1)]), [, y2] = api.coord([api.value(0), api.value(2)]);
      const line = (shape) => ({ type: "line", shape, style: { stroke: color, lineWidth: 1.6, opacity: 0.6 } });
      return { type: "group", children: [line({ x1: x, y1, x2: x, y2 }), ...[y1, y2].map((y) => line({ x1: x - 4, y1: y, x2: x + 4, y2: y }))] };
    } };
}

/** What a tooltip says of the lines [{label, data: rows}] at the place that `found` (of ECharts) is at: `title(place)`, values and bands. */
export function described(lines, found, title) {
  const place = (Array.isArray(found) ? found[0] : found)?.value?.[0];
  if (place === undefined) return "";
  const said = lines.slice(0, MOST_LINES).flatMap(({ label, data }) => {
    const row = data.find((one) => one[0] === place && one[1] !== null);
    if (!row) return [];
    // (braces would be read as the name of a style)
    return [`${label}: ${number(row[1])}${row[2] === null ? "" : ` (${number(row[2])} to ${number(row[3])})`}`.replace(/[{}]/g, "")];
  });
  return [title(place).replace(/[{}]/g, ""), ...said].join("\n");
}
