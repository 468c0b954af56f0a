// Pictures of a search: its outcomes over each factor and over pairs, what settings reported, when they ran, and the front.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { COLOURS, colour, Figure } from "web/chart";
import { has, offline } from "web/data";
import { count, duration, number } from "web/format";
import { shown, useResource } from "web/resource";
import { legend, scale, useMode } from "web/scales";

/** state of a setting -> its colour; other states are grey */
const COLOUR_OF = { complete: COLOURS[0], pruned: COLOURS[1], running: COLOURS[2], failed: COLOURS[7] };
const SLICES = "design/search/slices", CONTOUR = "design/search/contour", COURSE = "design/search/course";

const colourOf = (state) => COLOUR_OF[state] ?? colour("quiet");
const numbered = (_, i) => i;

/** The pictures, which are asked for again when `version` has changed. */
export function Pictures({ version }) {
  const options = { since: offline ? undefined : (last) => ({ since: last.version }), changes: version,
    take: (answer, last) => (answer.unchanged ? last : answer) };
  const slices = useResource(SLICES, options), course = useResource(COURSE, options);
  return [
    shown([slices], () => (slices.value.value.number.length ? h(Outcomes, { slices: slices.value.value, version }) : null)),
    shown([course], () => (course.value.value.timeline.number.length ? h(Course, course.value.value) : null)),
  ];
}

function Choice({ name, values, chosen }) {
  return h("label", {}, `${name} `, h("select", { value: chosen.value, onchange: (event) => { chosen.value = Number(event.target.value); } },
    values.map((text, i) => h("option", { value: i }, text))));
}

function Outcomes({ slices, version }) {
  const { objectives, factors, front } = slices, at = useSignal(0), objective = objectives[at.value];
  return [
    h("h3", {}, "Outcomes of complete settings"),
    objectives.length > 1 && h("div", { class: "controls" }, h(Choice, { name: "Objective", values: objectives.map(({ name }) => name), chosen: at })),
    front && h(Front, slices),
    h("div", { class: "grid" }, factors.map((factor) => h(Slice, { key: factor.name, factor, objective, settings: slices.number }))),
    factors.length > 1 && h(Contours, { key: objective.name, factors, objective: objective.name, version }),
  ];
}

/** The axis of a factor: numbers, logarithms, or levels at 0, 1, ... */
function factorAxis({ name, levels, log }, axis) {
  const named = (value) => (levels ? levels[value] ?? "" : number(value, 3));
  return { ...axis, axisLine: { ...axis.axisLine, onZero: false }, type: log ? "log" : "value", scale: true, name, nameLocation: "middle",
    ...(levels ? { min: -1, max: levels.length, interval: 1 } : {}), splitLine: { show: false },
    axisLabel: { ...axis.axisLabel, formatter: named, overflow: "truncate", width: 90 } };
}

function outcomeAxis(name, axis) {
  return { ...axis, axisLine: { ...axis.axisLine, onZero: false }, type: "value", scale: true, name,
    nameTextStyle: { ...axis.nameTextStyle, align: "left" }, axisLabel: { ...axis.axisLabel, formatter: (value) => number(value, 4) } };
}

/** A value of a factor as text. */
const textOf = ({ levels }, value) => (levels ? levels[value] : number(value));

function isActive({ levels }, value) {
  return levels ? value >= 0 : Number.isFinite(value);
}

function Slice({ factor, objective: { name, better, values }, settings }) {
  const points = Array.from(settings, numbered).filter((i) => isActive(factor, factor.values[i]) && Number.isFinite(values[i]));
  const inactive = settings.length - points.length;
  return h(Figure, {
    title: `${name} over ${factor.name}`, description: `${name} of ${count(points.length, "complete setting")} over ${factor.name}`, height: 260,
    note: [`${better} is better`, inactive > 0 && `${count(inactive, "setting")} without a value left out`].filter(Boolean).join("; "),
    options: ({ axis }) => ({
      grid: { left: 12, right: 24, top: 34, bottom: 34, containLabel: true }, legend: { show: false },
      tooltip: { trigger: "item", formatter: ({ dataIndex }) => `setting ${settings[points[dataIndex]]}\n${factor.name} = ${
        textOf(factor, factor.values[points[dataIndex]])}\n${name} = ${number(values[points[dataIndex]], 6)}` },
      xAxis: { ...factorAxis(factor, axis), nameGap: 26 }, yAxis: outcomeAxis(name, axis),
      series: [{ type: "scatter", symbolSize: 7, itemStyle: { color: COLOUR_OF.complete, opacity: 0.7 },
        data: points.map((i) => [factor.values[i], values[i]]) }],
    }),
    numbers: () => ({ columns: ["Setting", factor.name, name],
      rows: points.map((i) => [settings[i], factor.levels ? factor.levels[factor.values[i]] : factor.values[i], values[i]]) }),
  });
}

function Contours({ factors, objective, version }) {
  const queryOf = (x, y) => ({ x: factors[x].name, y: factors[y].name, objective });
  const x = useSignal(0), y = useSignal(1), names = factors.map(({ name }) => name);
  const answer = useResource(CONTOUR, { query: () => (x.value === y.value ? null : queryOf(x.value, y.value)), changes: version });
  // a page in one file has one pair
  if (!has(CONTOUR, queryOf(0, 1))) return null;
  return [
    h("h3", {}, `${objective} over two factors`),
    !offline && h("div", { class: "controls" }, h(Choice, { name: "To the right", values: names, chosen: x }), h(Choice, { name: "Upwards", values: names, chosen: y })),
    x.value === y.value ? h("p", { class: "quiet" }, "Choose two different factors.") : shown([answer], () => h(Contour, answer.value.value)),
  ];
}

function Contour({ x, y, values, number: settings, objective, better, grid }) {
  useMode();
  const finite = Array.from(values).filter(Number.isFinite);
  if (!finite.length) return h("p", { class: "quiet" }, "No complete setting has both factors.");
  const low = Math.min(...finite), high = Math.max(...finite), colours = scale("", [low, high]), title = `${objective} over ${x.name} and ${y.name}`;
  const cells = grid ? Array.from(grid.values, (value, i) => [i % grid.x.length, Math.floor(i / grid.x.length), value]).filter(([,, value]) => Number.isFinite(value)) : [];
  /** The edges of the k-th of the grid's columns or rows: halfway to its neighbours. */
  const edges = ({ log }, ends, k) => {
    const [middle, before, after] = [k, Math.max(0, k - 1), Math.min(ends.length - 1, k + 1)].map((i) => (log ? Math.log(ends[i]) : ends[i]));
    return [(middle + before) / 2, (middle + after) / 2].map((end) => (log ? Math.exp(end) : end));
  };
  return [
    legend(`${objective} (${better} is better)`, colours, [[low, number(low, 3)], [high, number(high, 3)]]),
    h(Figure, {
      title, description: `${title}: ${count(settings.length, "complete setting")}, from ${number(low)} to ${number(high)}`, height: 380,
      note: grid ? "interpolated between the settings, the points" : "too few settings to interpolate between them",
      options: ({ axis }) => ({
        grid: { left: 12, right: 24, top: 34, bottom: 34, containLabel: true }, legend: { show: false },
        tooltip: { trigger: "item", formatter: ({ dataIndex: i, seriesId }) => (seriesId === "settings" ? `setting ${settings[i]}\n${x.name} = ${textOf(x, x.values[i])}\n${
          y.name} = ${textOf(y, y.values[i])}\n${objective} = ${number(values[i], 6)}` : "") },
        xAxis: { ...factorAxis(x, axis), nameGap: 26 },
        yAxis: { ...factorAxis(y, axis), nameLocation: "end", nameTextStyle: { ...axis.nameTextStyle, align: "left" } },
        series: [
          { type: "custom", id: "grid", silent: true, data: cells.map(([i, j, value]) => [grid.x[i], grid.y[j], value]),
            encode: { x: 0, y: 1 }, clip: true, progressive: 0, renderItem: ({ dataIndex }, api) => {
              const [i, j, value] = cells[dataIndex], [left, right] = edges(x, grid.x, i), [bottom, top] = edges(y, grid.y, j);
              const [x1, y1] = api.coord([left, top]), [x2, y2] = api.coord([right, bottom]);
              // (half a pixel more, else the ground would be seen between cells)
              return { type: "rect", shape: { x: x1, y: y1, width: x2 - x1 + 0.5, height: y2 - y1 + 0.5 }, style: { fill: colours.colour(value) } };
            } },
          { type: "scatter", id: "settings", symbolSize: 8, data: Array.from(values, (value, i) => ({ value: [x.values[i], y.values[i]],
            itemStyle: { color: colours.colour(value), borderColor: colour("text"), borderWidth: 1 } })) },
        ],
      }),
      numbers: () => ({ columns: ["Setting", x.name, y.name, objective],
        rows: Array.from(values, (value, i) => [settings[i], ...[x, y].map((each) => (each.levels ? each.levels[each.values[i]] : each.values[i])), value]) }),
    }),
  ];
}

function Front({ number: settings, objectives, front }) {
  const x = useSignal(0), y = useSignal(1), [across, up] = [objectives[x.value], objectives[y.value]];
  const places = new Map(Array.from(settings, (setting, i) => [setting, i])), members = new Set(front), names = objectives.map(({ name }) => name);
  const points = (indices) => indices.map((i) => ({ value: [across.values[i], up.values[i]], setting: settings[i] }));
  const onFront = front.map((setting) => places.get(setting)), others = Array.from(settings, numbered).filter((i) => !members.has(settings[i]));
  const title = `Pareto front: ${up.name} over ${across.name}`;
  return [
    objectives.length > 2 && h("div", { class: "controls" },
      h(Choice, { name: "To the right", values: names, chosen: x }), h(Choice, { name: "Upwards", values: names, chosen: y })),
    h(Figure, {
      title, note: `${across.name}: ${across.better} is better; ${up.name}: ${up.better} is better`,
      description: `${title}: ${number(front.length)} of ${count(settings.length, "complete setting")} are not dominated`, height: 340,
      options: ({ axis }) => ({
        grid: { left: 12, right: 24, top: 56, bottom: 34, containLabel: true }, legend: { top: 0, textStyle: { color: colour("text") } },
        tooltip: { trigger: "item", formatter: ({ data }) => `setting ${data.setting}\n${across.name} = ${number(data.value[0], 6)}\n${up.name} = ${number(data.value[1], 6)}` },
        xAxis: { ...outcomeAxis(across.name, axis), nameLocation: "middle", nameGap: 26 }, yAxis: outcomeAxis(up.name, axis),
        series: [
          { type: "scatter", id: "others", name: "other settings", symbolSize: 7, itemStyle: { color: colour("quiet"), opacity: 0.5 }, data: points(others) },
          { type: "scatter", id: "front", name: "Pareto front", symbolSize: 9, itemStyle: { color: COLOURS[1] }, data: points(onFront) },
        ],
      }),
      numbers: () => ({ columns: ["Setting", ...names, "Pareto front"],
        rows: Array.from(settings, (setting, i) => [setting, ...objectives.map(({ values }) => values[i]), members.has(setting) ? "yes" : ""]) }),
    }),
  ];
}

function Course({ timeline, reports }) {
  return [reports.length > 0 && h(Reports, { reports }), h(Timeline, { timeline })];
}

/** What settings reported to the pruner: a line each, which ends early where it was stopped. */
function Reports({ reports }) {
  const size = (state) => reports.filter((report) => report.state === state).length;
  const states = [...new Set(reports.map(({ state }) => state))], title = "What settings reported while they were executed";
  const counted = states.map((state) => `${number(size(state))} ${state}`).join(", ");
  return h(Figure, {
    title, note: counted,
    description: `${title}: ${counted}`, height: 340,
    options: ({ axis }) => ({
      grid: { left: 12, right: 24, top: 56, bottom: 34, containLabel: true }, legend: { top: 0, data: states, textStyle: { color: colour("text") } },
      tooltip: { trigger: "item", formatter: ({ seriesIndex, value }) => `setting ${reports[seriesIndex].number} (${reports[seriesIndex].state})\nreport ${
        number(value[0])}: ${number(value[1], 6)}` },
      xAxis: { ...axis, type: "value", minInterval: 1, name: "report", nameLocation: "middle", nameGap: 26 }, yAxis: outcomeAxis("objective so far", axis),
      series: reports.map(({ number: setting, state, step, value }) => ({ type: "line", id: `${setting}`, name: state, symbol: "circle",
        symbolSize: 4, lineStyle: { width: 1.4, opacity: 0.6, type: state === "pruned" ? [5, 4] : "solid" }, itemStyle: { color: colourOf(state) },
        data: Array.from(step, (report, i) => ({ value: [report, value[i]],
          ...(state === "pruned" && i === step.length - 1 ? { symbol: "diamond", symbolSize: 10 } : {}) })) })),
    }),
    numbers: () => ({ columns: ["Setting", "State", "Report", "Objective so far"],
      rows: reports.flatMap(({ number: setting, state, step, value }) => Array.from(step, (report, i) => [setting, state, report, value[i]])) }),
  });
}

/** When each setting was executed; one that is still executed lasts until the last known moment. */
function Timeline({ timeline }) {
  const begin = Math.min(...timeline.start), last = Math.max(...[...timeline.start, ...timeline.end].filter(Number.isFinite));
  const rows = Array.from(timeline.number, (setting, i) => ({ setting, state: timeline.state[i], worker: timeline.worker[i],
    from: timeline.start[i] - begin, to: (Number.isFinite(timeline.end[i]) ? timeline.end[i] : last) - begin }));
  const states = [...new Set(timeline.state)], title = "When settings were executed";
  return h(Figure, {
    title, description: `${title}: ${count(rows.length, "setting")} in ${duration(last - begin)}`, height: Math.min(600, 110 + 14 * rows.length),
    options: ({ axis }) => ({
      grid: { left: 12, right: 24, top: 36, bottom: 34, containLabel: true }, legend: { top: 0, data: states, textStyle: { color: colour("text") } },
      tooltip: { trigger: "item", formatter: ({ data: { row } }) => `setting ${row.setting}: ${row.state}\nfrom ${duration(row.from)} to ${duration(row.to)}`
        + (row.worker ? `\n${row.worker}` : "") },
      xAxis: { ...axis, type: "value", min: 0, name: "time since the first setting", nameLocation: "middle", nameGap: 26,
        axisLabel: { ...axis.axisLabel, formatter: (seconds) => duration(seconds) } },
      yAxis: { ...axis, type: "value", inverse: true, min: -1, max: Math.max(...timeline.number) + 1, minInterval: 1, name: "setting",
        nameLocation: "start", splitLine: { show: false },
        axisLabel: { ...axis.axisLabel, showMinLabel: false, showMaxLabel: false } },
      series: states.map((state) => ({ type: "custom", id: state, name: state, itemStyle: { color: colourOf(state) }, encode: { x: [0, 1], y: 2 },
        data: rows.filter((row) => row.state === state).map((row) => ({ value: [row.from, row.to, row.setting], row })),
        renderItem: (_, api) => {
          const [x1, middle] = api.coord([api.value(0), api.value(2)]), [x2] = api.coord([api.value(1), api.value(2)]);
          const height = Math.max(2, 0.7 * Math.abs(api.size([0, 1])[1]));
          return { type: "rect", shape: { x: x1, y: middle - height / 2, width: Math.max(2, x2 - x1), height }, style: { fill: colourOf(state) } };
        } })),
    }),
    numbers: () => ({ columns: ["Setting", "State", "Worker", "Start (s)", "End (s)"], rows: rows.map((row) => [row.setting, row.state, row.worker ?? "", row.from, row.to]) }),
  });
}
