// Lines and percentiles over time, as options of ECharts, as a text and as a table.

import { colour, look } from "web/chart";
import { number } from "web/format";

/** in a table of numbers, so many rows are shown */
const MOST_ROWS = 1000;
/** a line of so few points has marks */
const MARKED = 40;
/** a line that has grown beyond so many points is asked for anew */
const MOST_POINTS = 6000;
const COLUMNS = ["x", "y", "low", "high", "min", "median", "max"];
const LEVELS = [["min", "lowest"], ["low", "5 %"], ["median", "median"], ["high", "95 %"], ["max", "highest"]];

/** @type {[string, number][]} */
const UNITS = [["s", 1], ["min", 60], ["h", 3600], ["d", 86400]];

/** the first label of a month or a day says which day it is; ECharts' own templates */
const DATES = { year: "{d} {MMM} {yyyy}", month: "{d} {MMM}", day: "{d} {MMM}" };

/** How ticks become places on the x axis: {type, name, value(tick), tick(value), text(tick)}. */
export function scale({ seconds_per_tick: seconds, start, span, phases }) {
  if (start) {
    const begin = Date.parse(`${start}Z`);
    const value = (tick) => begin + tick * seconds * 1000;
    const text = (tick) => new Date(value(tick)).toISOString().slice(0, seconds % 60 ? 19 : 16).replace("T", " ");
    const days = [...new Set((span ?? [0]).map((tick) => text(tick).slice(0, 10)))];
    return { type: "time", name: `time, ${days.join(" to ")}`, value, tick: (x) => (x - begin) / seconds / 1000, text };
  }
  if (seconds) {
    const length = ((span?.[1] ?? 1) - (span?.[0] ?? 0)) * seconds;
    const [unit, size] = UNITS.filter(([, one]) => length >= 3 * one).at(-1) ?? UNITS[0];
    const value = (tick) => tick * seconds / size;
    return { type: "value", name: `time since the episode's start (${unit})`, value, tick: (x) => x * size / seconds,
      text: (tick) => `${number(value(tick), 6)} ${unit}` };
  }
  const name = phases.length > 1 ? "time since the episode's start (ticks)" : "time (ticks)";
  return { type: "value", name, value: (tick) => tick, tick: (x) => x, text: (tick) => number(tick, 9) };
}

/** Answers for one phase each as an answer for all of these phases, which are laid over one another. */
export function laidOver(answers) {
  if (answers.length === 1) return answers[0];
  const panels = [];
  answers.forEach((answer, i) => answer.panels.forEach((panel) => {
    let own = panels.find((one) => one.pattern === panel.pattern && one.y_label === panel.y_label && one.kind === panel.kind);
    if (!own) panels.push(own = { ...panel, lines: [] });
    own.lines.push(...panel.lines.map((line) => ({ ...line, phase: i })));
  }));
  // a line that has the right axis in one phase has it in all; a column has its dashes in all
  for (const { lines } of panels) {
    const name = (line) => `${line.label} ${line.column}`, columns = [...new Set(lines.map(name))];
    const right = new Set(lines.filter((line) => line.right).map(name));
    for (const line of lines) {
      line.right = right.has(name(line));
      line.place = line.column === undefined ? line.place : columns.indexOf(name(line));
    }
  }
  panels.sort((a, b) => a.pattern - b.pattern);
  const same = (name) => (answers.every((one) => one[name] === answers[0][name]) ? answers[0][name] : null);
  const spans = answers.map((one) => one.span).filter(Boolean);
  return { ...answers[0], phases: answers.flatMap((one) => one.phases), panels, problems: answers.flatMap((one) => one.problems),
    seconds_per_tick: same("seconds_per_tick"), start: same("start"),
    span: spans.length ? [Math.min(...spans.map(([first]) => first)), Math.max(...spans.map(([, last]) => last))] : null };
}

/** A panel with the details of a window in place of the points that it has there. */
export function refined(panel, details) {
  const found = details?.panels.find((one) => one.pattern === panel.pattern && one.y_label === panel.y_label && one.kind === panel.kind);
  if (!found) return panel;
  const lines = panel.lines.map((line) => {
    const own = found.lines.find((one) => one.phase === line.phase && one.label === line.label && one.column === line.column);
    if (!own) return line;
    const before = line.x.findIndex((x) => x >= details.start), after = line.x.findIndex((x) => x >= details.stop);
    const ends = [before < 0 ? line.x.length : before, after < 0 ? line.x.length : after];
    const joined = { ...line, inside: { points: own.points, shown: own.x.length } };
    for (const name of COLUMNS) {
      if (!line[name] || !own[name]) continue;
      const all = Array.from(line[name]);
      joined[name] = [...all.slice(0, ends[0]), ...own[name], ...all.slice(ends[1])];
    }
    return joined;
  });
  return { ...panel, lines };
}

/**
 * An answer with the later ticks of its newest phase, `later`; the answer itself if there are none, and undefined where the
 * lines are others, or so long that they are asked for anew.
 */
export function extended(answer, later) {
  const index = answer.phases.length - 1, newest = answer.phases[index], start = Math.max(0, newest.complete + 1);
  const [{ last, complete }] = later.phases;
  if (!later.span || complete < start) return last === newest.last ? answer : { ...answer, phases: answer.phases.with(index, { ...newest, last }) };
  const alike = (a, b) => a.pattern === b.pattern && a.y_label === b.y_label && a.kind === b.kind;
  const line = (own, panel) => {
    const more = later.panels.find((one) => alike(one, panel))?.lines.find((one) => one.column === own.column && one.label === own.label);
    if (own.phase !== index || !more) return own;
    const kept = own.x.findIndex((x) => x >= start), end = kept < 0 ? own.x.length : kept;
    const joined = { ...own, points: own.points + more.x.length - (own.x.length - end) };
    for (const name of COLUMNS) if (own[name]) joined[name] = [...Array.from(own[name]).slice(0, end), ...more[name]];
    return joined;
  };
  const shown = (panel, one) => answer.panels.find((own) => alike(own, panel))?.lines.find(
    (own) => own.phase === index && own.column === one.column && own.label === one.label);
  if (later.panels.some((panel) => panel.lines.some((one) => !(shown(panel, one)?.x.length <= MOST_POINTS)))) return undefined;
  return { ...answer, panels: answer.panels.map((panel) => ({ ...panel, lines: panel.lines.map((own) => line(own, panel)) })),
    phases: answer.phases.with(index, { ...newest, last, complete }),
    span: [Math.min(answer.span?.[0] ?? Infinity, later.span[0]), Math.max(answer.span?.[1] ?? -Infinity, later.span[1])] };
}

/** What the figure's caption says of how it is drawn. */
export function caption(panel, answer) {
  const parts = [];
  if (panel.kind === "percentiles") {
    parts.push(`${number(panel.columns)} columns: median, 5 to 95 %, lowest to highest at each time`);
  }
  if (panel.note) parts.push(panel.note);
  const limits = [...new Set(panel.limits.map((one) => one.name))].map((name) => {
    const values = panel.limits.filter((one) => one.name === name).map((one) => number(one.value));
    return `${name}${values.length > 1 ? "s" : ""} ${values.join(" and ")}${panel.unit ? ` ${panel.unit}` : ""} (dashed)`;
  });
  parts.push(...limits);
  const right = [...new Set(panel.lines.filter((one) => one.right).map((one) => one.label))];
  if (right.length) parts.push(`right axis: ${right.join(", ")}`);
  if (answer.phases.length > 1) parts.push(`phases by colour${answer.start ? "" : ", over the time since the episode's start"}`);
  const thin = panel.lines.filter((one) => (one.inside ? one.inside.points > one.inside.shown : one.points > one.x.length));
  if (thin.length) {
    const { points, shown } = thin[0].inside ?? { points: thin[0].points, shown: thin[0].x.length };
    parts.push(`${number(shown)} of ${number(points)} points of a line are drawn, its lowest and highest among them; `
      + "zoom in to see all");
  }
  return parts.map((one) => `${one[0].toUpperCase()}${one.slice(1)}.`).join(" ");
}

function names(answer) {
  const known = answer.phases.map((one) => one.name);
  return answer.phases.map((one, i) => (known.indexOf(one.name) === known.lastIndexOf(one.name) ? one.name : `${one.phase} ${one.name}`)
    || `phase ${answer.phases[i].phase}`);
}

function title(line, answer) {
  return answer.phases.length > 1 ? `${names(answer)[line.phase]} · ${line.label}` : line.label;
}

/** The places [from, to] of a line that lie in the window, and one beside them at each end. */
function inside(x, [first, last]) {
  let from = 0, to = x.length;
  while (from < to && x[from] < first) from += 1;
  while (to > from && x[to - 1] > last) to -= 1;
  return [Math.max(0, from - 1), Math.min(x.length, to + 1)];
}

/** Options of ECharts. */
export function options({ panel, answer, axis, window }, base) {
  const several = answer.phases.length > 1;
  const series = [], legend = [];
  for (const line of panel.lines) {
    const [from, to] = inside(line.x, window);
    const style = several ? look(line.phase, line.place) : look(line.place);
    const name = title(line, answer) + (line.right ? " (right axis)" : "");
    const points = (of) => Array.from({ length: to - from }, (_, i) => [axis.value(line.x[from + i]), of(from + i)]);
    const value = (column) => (i) => (Number.isFinite(line[column][i]) ? line[column][i] : null);
    const id = `${line.phase}/${line.column ?? ""}/${line.label}`;
    // (what has an axis of its own may coincide with others: it is drawn above them)
    const common = { type: "line", yAxisIndex: line.right ? 1 : 0, z: line.right ? 3 : 2, symbol: "circle", symbolSize: 4, silent: true,
      lineStyle: { ...style, width: 1.4 }, itemStyle: { color: style.color }, step: line.steps ? "end" : false };
    // one above the other: an invisible line, and what lies between it and the next
    const band = (edges) => edges.forEach(([column, shown, opacity], k) => {
      const below = k ? edges[k - 1][0] : null;
      const height = (i) => (below === null || value(column)(i) === null || value(below)(i) === null
        ? value(column)(i) : line[column][i] - line[below][i]);
      series.push({ ...common, id: `${id}/${column}`, name: shown ?? `${name} ${column}`, stack: id, stackStrategy: "all",
        data: points(height), showSymbol: false, lineStyle: { width: 0, color: style.color },
        areaStyle: opacity ? { color: style.color, opacity, origin: "auto" } : null });
      if (shown) legend.push({ name: shown, icon: "roundRect", itemStyle: { color: style.color, opacity: Math.min(1, opacity * 2) } });
    });
    if (panel.kind === "percentiles") {
      const of = (text) => (several ? `${names(answer)[line.phase]} · ${text}` : text);
      series.push({ ...common, id: `${id}/median`, name: of("median"), data: points(value("median")), showSymbol: to - from <= MARKED });
      legend.push({ name: of("median") });
      band([["min", null, 0], ["low", null, 0.14], ["high", of("5 to 95 %"), 0.34], ["max", of("lowest to highest"), 0.14]]);
      continue;
    }
    series.push({ ...common, id, name, data: points(value("y")), showSymbol: to - from <= MARKED });
    legend.push({ name });
    if (line.low) band([["low", null, 0], ["high", null, 0.18]]);
  }
  for (const one of panel.limits) {
    const name = `${one.name} ${number(one.value)}`;
    const color = one.name === "limit" ? colour("failed") : colour("quiet");
    series.push({ id: `limit/${one.name}/${one.value}`, name, type: "line", silent: true, symbol: "none",
      data: (answer.span ?? [0, 1]).map((tick) => [axis.value(tick), one.value]),
      lineStyle: { color, type: "dashed", width: 1.2 }, itemStyle: { color } });
    legend.push({ name });
  }
  const right = panel.lines.some((one) => one.right);
  const [first, last] = (answer.span ?? [0, 1]).map(axis.value);
  const [a, b] = window.map(axis.value);
  const y = { ...base.axis, type: "value", scale: true, name: panel.unit ?? "" };
  const move = { xAxisIndex: 0, filterMode: "none", startValue: a, endValue: b };
  return {
    useUTC: true,
    series,
    legend: { ...base.legend, data: legend, top: 0 },
    grid: { left: 12, right: 16, top: 56, bottom: 62, containLabel: true },
    xAxis: { ...base.axis, type: axis.type, name: axis.name, nameLocation: "middle", nameGap: 26, min: first, max: last,
      axisLabel: { ...base.axis.axisLabel, ...(axis.type === "time" && { formatter: DATES }) } },
    yAxis: [y, ...(right ? [{ ...y, position: "right", splitLine: { show: false }, name: `${panel.unit ?? ""} (right)` }] : [])],
    tooltip: { ...base.tooltip, trigger: "axis", confine: true, formatter: (found) => described({ panel, answer, axis }, found) },
    toolbox: { itemSize: 0, showTitle: false, feature: { dataZoom: { yAxisIndex: false, filterMode: "none" } } },
    dataZoom: [
      { ...move, type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseMove: "shift", moveOnMouseWheel: false },
      { ...move, type: "slider", height: 14, bottom: 6, showDataShadow: false, brushSelect: true, borderColor: colour("line"),
        textStyle: { color: colour("quiet") }, labelFormatter: (value) => axis.text(Math.round(axis.tick(value))) },
    ],
  };
}

/** The values of all lines at the place of a pointer, as text. */
function described({ panel, answer, axis }, found) {
  const place = (Array.isArray(found) ? found[0] : found)?.axisValue;
  if (place === undefined) return "";
  const tick = axis.tick(place);
  const rows = panel.lines.slice(0, 14).map((line) => {
    const i = nearest(line.x, tick);
    const said = panel.kind === "percentiles" ? LEVELS.map(([name, text]) => `${text} ${number(line[name][i])}`).join(", ")
      : number(line.y[i]);
    // (braces would be read as the name of a style)
    return `${title(line, answer)}: ${said}`.replace(/[{}]/g, "");
  });
  return [axis.text(Math.round(tick)), ...rows].join("\n");
}

function nearest(x, tick) {
  let low = 0, high = x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] > tick) high = middle;
    else low = middle;
  }
  return tick - x[low] <= x[high] - tick ? low : high;
}

/** The numbers of a panel as a table: a row for each tick in the window at which a line has a point. */
export function table({ panel, answer, axis, window }, most = MOST_ROWS) {
  const cells = panel.lines.flatMap((line) => (panel.kind === "percentiles"
    ? LEVELS.map(([name, text]) => [line, name, `${title(line, answer)}: ${text}`])
    : [["y", ""], ...(line.low ? [["low", ": lowest"], ["high", ": highest"]] : [])]
      .map(([name, text]) => [line, name, `${title(line, answer)}${text}`])));
  const at = new Map();
  cells.forEach(([line, name], k) => line.x.forEach((tick, i) => {
    if (tick < window[0] || tick > window[1]) return;
    if (!at.has(tick)) at.set(tick, Array(cells.length).fill(null));
    at.get(tick)[k] = line[name][i];
  }));
  /** @type {[string, (tick: number) => string][]} */
  const dates = axis.type === "time" ? [["time", (tick) => axis.text(tick)]] : [];
  const ticks = [...at.keys()].sort((a, b) => a - b);
  const rows = ticks.slice(0, most).map((tick) => [tick, ...dates.map(([, text]) => text(tick)),
    ...at.get(tick).map((one) => (Number.isFinite(one) ? one : "–"))]);
  if (ticks.length > most) rows.push([`${number(ticks.length - most)} more: zoom in to see them`]);
  return { columns: ["tick", ...dates.map(([name]) => name), ...cells.map(([, , text]) => text)], rows };
}
