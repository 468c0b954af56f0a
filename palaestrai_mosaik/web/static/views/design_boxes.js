// Boxes of factors in which a condition holds, as `arsenai analyse --discover` finds them.

import { h } from "preact";
import { COLOURS, colour, Figure } from "web/chart";
import { rowsOf } from "web/data";
import { count, number } from "web/format";
import { between } from "web/level_chart";
import { cautions, table } from "web/page";

/** boxes that are drawn; the table has all */
const MOST_DRAWN = 4;
const percent = (value) => `${number(100 * value, 3)} %`;

/** What is shown of one condition. */
export function boxes(found) {
  const refused = found.refused ? [`no box: ${found.refused}`] : [];
  const drawn = found.boxes.slice(0, MOST_DRAWN).filter((one) => one.plane);
  const lost = found.lost > 0 && `${count(found.lost, "run")} more ${found.lost === 1 ? "is" : "are"} lost`;
  return [h("h3", {}, `Where does it hold: ${found.condition}?`),
    h("p", {}, `${[found.title, lost, found.nothing_found].filter(Boolean).join("; ")}.`),
    cautions([...refused, ...found.notes]),
    found.boxes.length > 0 && [
      table(BOXES, found.boxes, `Boxes in which ${found.condition}; shares and intervals from settings that did not choose the box`),
      drawn.map((one) => plane(one, found.groups)),
      drawn.length < found.boxes.length && h("p", { class: "quiet" }, `Drawn are ${drawn.length} of ${found.boxes.length} boxes.`),
      h("details", {}, h("summary", {}, "The limits of each box"), found.boxes.map((one) => table(LIMITS, rowsOf(one.limits), one.name))),
    ]];
}

const BOXES = [
  { title: "Box", value: (one) => one.name }, { title: "Rule", value: (one) => one.rule },
  ...["coverage", "density"].flatMap((name) => [
    { title: name === "coverage" ? "Coverage" : "Density", number: true, value: (one) => number(one[name]) },
    { title: "Interval", value: (one) => between(one[`${name}_low`], one[`${name}_high`]) },
  ]),
  { title: "Mass", number: true, value: (one) => number(one.mass) },
  { title: "Runs", number: true, value: (one) => number(one.runs) }, { title: "Holds in", number: true, value: (one) => number(one.holds) },
  { title: "Lost", number: true, value: (one) => number(one.lost) },
  { title: "Overlap with resamples", number: true, value: (one) => number(one.overlap) },
];

const LIMITS = [
  { title: "Factor", value: (row) => row.factor }, { title: "Limit", value: (row) => row.limit }, { title: "Value", value: (row) => row.value },
  { title: "Quasi-p", number: true, value: (row) => (row.quasi_p < 0.001 ? "<0.001" : number(row.quasi_p, 3)) },
  { title: "In resamples", number: true, value: (row) => percent(row.present) },
  { title: "Interval", value: (row) => between(row.low, row.high) },
];

/** All rows in the plane of the two factors that the box limits most, by how often the condition holds, and the box. */
function plane(one, groups) {
  const { x, y, group, inside } = one.plane;
  const rows = Array.from(group, (_, i) => i);
  const looks = [{ color: colour("quiet"), opacity: 0.45 }, { color: COLOURS[5], opacity: 0.9 }, { color: COLOURS[1], opacity: 0.9 }];
  const title = `${one.name}: ${one.rule}`;
  const size = rows.filter((i) => inside[i]).length;
  return h(Figure, {
    key: one.name,
    title,
    description: `${title}. ${x.name} to the right, ${y.name} upwards. Of ${number(rows.length)} rows, ${number(size)} lie in the box.`,
    height: 340,
    options: ({ axis, legend }) => ({
      grid: { left: 12, right: 24, top: 36, bottom: 34, containLabel: true },
      legend: { ...legend, top: 0, data: groups },
      tooltip: { show: false },
      xAxis: { ...side(x, axis), nameLocation: "middle", nameGap: 26 },
      yAxis: { ...side(y, axis), nameTextStyle: { ...axis.nameTextStyle, align: "left" } },
      series: groups.map((name, i) => ({
        type: "scatter", name, symbolSize: i ? 7 : 5, itemStyle: looks[i],
        data: rows.filter((row) => group[row] === i).map((row) => [x.places[row], y.places[row]]),
        // (the frame is there whichever groups are shown)
        markArea: i ? undefined : { silent: true, itemStyle: { color: "transparent", borderColor: COLOURS[0], borderWidth: 2 },
          data: [[{ coord: [x.limit[0], y.limit[0]] }, { coord: [x.limit[1], y.limit[1]] }]] },
      })),
    }),
  });
}

function side({ name, span, levels, log }, axis) {
  const label = (value) => (levels.length ? levels[value] ?? "" : number(value, 3));
  // (levels lie at 0, 1, ...: marks are put there if the axis begins at a whole number)
  const [low, high] = levels.length ? [-1, levels.length] : span;
  return { ...axis, axisLine: { ...axis.axisLine, onZero: false }, type: log ? "log" : "value", min: low, max: high, name,
    interval: levels.length ? 1 : undefined, splitLine: { show: false },
    axisLabel: { ...axis.axisLabel, formatter: label, overflow: "truncate", width: 90 } };
}
