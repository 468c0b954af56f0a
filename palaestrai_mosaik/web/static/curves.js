// Curves over episodes, as figures: those of one run, or of several overlaid.

import { h } from "preact";
import { band, described } from "web/bands";
import { colour, Figure } from "web/chart";
import { count, number } from "web/format";
import { table } from "web/page";

/** a line of so few points has marks; a chart of more points has a slider to zoom */
const MARKED = 40, SLIDER = 50;
/** in a table of numbers, so many rows are shown */
const MOST_ROWS = 4000;
/** a phase has at least this share of the axis, so that there is room for its name */
const APART = 0.1;

/** One line in place of several that have the same points everywhere, such as the reward that two agents share. */
function same(lines) {
  const alike = new Map();
  for (const line of lines) {
    const key = JSON.stringify([line.scatter, line.data]);
    alike.set(key, [...(alike.get(key) ?? []), line]);
  }
  return [...alike.values()].map((several) => {
    if (several.length === 1) return several[0];
    const [first, second] = several.map(({ label }) => label);
    const common = new Set(several.map(({ look }) => look.color)).size === 1 ? several[0].look : { ...several[0].look, color: colour("quiet") };
    return { ...several[0], label: `${several.length} identical: ${first}${several.length === 2 ? ` and ${second}` : ", ..."}`, look: common };
  });
}

/** Of each line, whether it has a point in common with an earlier one (`above`) or with a later one (`below`). */
function shared(lines) {
  const first = new Map(), found = lines.map(() => ({ above: false, below: false }));
  lines.forEach(({ data }, i) => data.forEach(([x, y]) => {
    if (y === null) return;
    const key = `${x} ${y}`, known = first.get(key);
    if (known === undefined) first.set(key, i);
    else if (known !== i) found[i].above = found[known].below = true;
  }));
  return found;
}

/** The points of a line; those that nothing joins to another one get a mark of the size `size`. */
function lone(data, size) {
  const given = (i) => data[i] !== undefined && data[i][1] !== null && !Number.isNaN(data[i][1]);
  return data.map(([x, y], i) => (given(i) && !given(i - 1) && !given(i + 1) ? { value: [x, y], symbol: "circle", symbolSize: size } : [x, y]));
}

/** Where phases lie on an axis on which they stand one behind the other: [{phase, begin, length}]; short ones are `APART`, too. */
function places(curves) {
  const lengths = new Map();
  for (const one of curves) {
    lengths.set(one.phase, Math.max(lengths.get(one.phase) ?? 0, (one.x.at(-1) ?? 0) + (one.evaluation ? 0 : 1)));
  }
  const least = lengths.size > 1 ? APART * [...lengths.values()].reduce((sum, one) => sum + one, 0) : 0;
  let begin = 0;
  return [...lengths.keys()].sort((a, b) => a - b).map((phase) => {
    const length = lengths.get(phase), width = Math.max(length, least);
    // (its name stands at its beginning)
    const found = { phase, begin: begin + 0.7 * (width - length), length, from: begin - 0.5 };
    begin += width;
    return { ...found, to: begin - 0.5 };
  });
}

/** Numbers of episodes for the axis: in each phase from 0, in steps of 1, 2, 5, 10, 20, ... */
function ticks(found) {
  const total = found.reduce((sum, one) => sum + one.length, 0), power = 10 ** Math.floor(Math.log10(Math.max(1, total / 8)));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => total / one <= 10) ?? 10 * power;
  return found.flatMap(({ begin, length }) => Array.from({ length: Math.ceil(length / step) }, (_, i) => begin + i * step));
}

/** Curves and unfinished episodes by what they show: [{title, kind, curves, unfinished}], the objective first. */
export function groups(curves, unfinished = []) {
  const named = new Map();
  const groupOf = ({ kind, name }) => {
    const title = kind === "objective" ? "Objective" : kind === "reward" ? `Reward ${name}` : `Statistic ${name}`;
    if (!named.has(title)) named.set(title, { title, kind, curves: [], unfinished: [] });
    return named.get(title);
  };
  for (const curve of curves) groupOf(curve).curves.push(curve);
  for (const episode of unfinished) groupOf(episode).unfinished.push(episode);
  return [...named.values()];
}

/** The choice of the statistic of an episode's values. */
export function FoldChoice({ fold, chosen }) {
  return h("label", {}, "Of an episode's values, the",
    h("select", { value: fold, onchange: (event) => chosen(event.target.value) },
      h("option", { value: "sum" }, "return (sum)"), h("option", { value: "mean" }, "mean")));
}

/** Phases of one episode as a table of phase and agent, in which unfinished episodes have their label. */
export function EpisodeValues({ title, curves, unfinished, fold, phases }) {
  const all = [...curves, ...unfinished], agents = [...new Set(all.map(({ agent }) => agent))];
  const rows = phases.filter(({ phase }) => all.some((each) => each.phase === phase));
  const cell = (phase, agent) => {
    const matches = (each) => each.phase === phase && each.agent === agent;
    return [curves.filter(matches).map((curve) => number(curve[fold][0])),
      unfinished.filter(matches).map((episode) => h("div", {}, number(episode[fold]), h("span", { class: "quiet" }, ` (${episode.label})`)))];
  };
  return h("div", { class: "card" }, h("h3", {}, title), table([{ title: "Phase", value: ({ name }) => name },
    ...agents.map((agent) => ({ title: agent, number: true, value: ({ phase }) => cell(phase, agent) }))], rows,
  fold === "sum" ? "Sum of an episode" : "Mean of an episode"));
}

const value = (one) => (Number.isFinite(one) ? one : null);

/**
 * A figure of curves. `lines` are [{label, curve, look}], where a label that occurs again continues its line in the next phase;
 * `unfinished` are [{label, episode, look}], drawn open; `fold` is "mean" or "sum"; `phases` are [{phase, name}].
 */
export function CurveFigure({ title, lines, unfinished = [], fold, phases, height = 300 }) {
  const columns = fold === "mean" ? ["mean", "low", "high"] : ["sum", "sum_low", "sum_high"];
  const names = new Map(phases.map((one) => [one.phase, one.name]));

  /** The points of a curve: [[x, value, lowest, highest]], null where there is none. */
  function points({ curve }, begin) {
    const [middle, low, high] = columns.map((name) => curve[name]);
    return Array.from(curve.x, (x, i) => [begin.get(curve.phase) + x, value(middle[i]), value(low?.[i]), value(high?.[i])]);
  }
  function options({ axis }) {
    const found = places([...lines.map((one) => one.curve), ...unfinished.map(({ episode }) => ({ ...episode, x: [episode.x] }))]);
    const begins = new Map(found.map(({ phase, begin }) => [phase, begin]));
    const merged = same(continued(lines, begins)), common = shared(merged);
    const most = Math.max(0, ...merged.map((one) => one.data.length));
    /** @type {any[]} */
    const series = merged.map((one, i) => {
      const { above, below } = common[i], marked = one.scatter || one.data.length <= MARKED;
      // (what lies below another line is wider, what lies above it is dashed: both are seen)
      return { name: one.label, id: one.label, type: one.scatter ? "scatter" : "line", symbol: one.scatter ? "diamond" : marked ? "circle" : "none",
        symbolSize: (one.scatter ? 9 : 6) + (below ? 4 : 0), showSymbol: true, lineStyle: { width: below ? 3 : 1.6, type: above ? [5, 5] : one.look.type },
        itemStyle: { color: one.look.color }, data: one.scatter ? one.data.map(([x, y]) => [x, y]) : lone(one.data, below ? 12 : 8) };
    });
    for (const one of merged) if (one.over) series.push(...band(one.label, one.data, one.look.color));
    // (text on the canvas is never markup, but braces would be read as the name of a style)
    unfinished.forEach(({ label, episode, look }, i) => series.push({ type: "scatter", id: `unfinished/${i}`, name: `${label} (unfinished)`,
      symbol: "emptyCircle", symbolSize: 9, itemStyle: { color: look.color }, data: [[begins.get(episode.phase) + episode.x, value(episode[fold])]],
      label: { show: true, position: "top", color: colour("text"), formatter: () => episode.label } }));
    if (found.length > 1 && series.length) {
      series[0].markLine = { silent: true, symbol: "none", lineStyle: { color: colour("quiet"), type: "dashed" }, label: { color: colour("quiet"),
        formatter: ({ data }) => data.name, position: "insideEndBottom" },
      data: found.map(({ phase, from }) => ({ xAxis: from, name: names.get(phase) ?? String(phase) })) };
    }
    const zoomed = most > SLIDER;
    const episode = (x) => {
      const { phase, begin } = found.findLast(({ from }) => x >= from) ?? found[0];
      return [names.get(phase) ?? String(phase), Math.round(x - begin)];
    };
    const marks = ticks(found), across = found.length > 1 ? { min: found[0].from, max: found.at(-1).to, axisTick: { customValues: marks },
      splitLine: { show: false }, axisLabel: { ...axis.axisLabel, customValues: marks, formatter: (x) => episode(x)[1] },
      axisPointer: { label: { formatter: ({ value: x }) => `${episode(x)[0]}, episode ${episode(x)[1]}`.replace(/[{}]/g, "") } } } : {};
    return { grid: { left: 70, right: 20, top: 34, bottom: zoomed ? 64 : 40 }, xAxis: { ...axis, type: "value", name: "episode",
      nameLocation: "middle", nameGap: 24, minInterval: 1, scale: true, ...across }, yAxis: { ...axis, type: "value", scale: true,
      name: fold === "mean" ? "mean of an episode" : "return of an episode", nameLocation: "middle", nameGap: 52,
      axisLine: { ...axis.axisLine, onZero: false } },
    // (a band is switched with its line)
    legend: { data: [...new Set(series.filter(({ type }) => type !== "custom").map(({ name }) => name))], type: "scroll", top: 0, left: "center",
      textStyle: { color: colour("text") }, pageTextStyle: { color: colour("quiet") } },
    tooltip: { trigger: "axis", renderMode: "richText", backgroundColor: colour("raised"), borderColor: colour("line"),
      textStyle: { color: colour("text"), fontSize: 12 },
      formatter: (pointed) => described(merged, pointed, (x) => (found.length > 1 ? `${episode(x)[0]}, episode ${episode(x)[1]}` : `episode ${x}`)) },
    dataZoom: [{ type: "inside" }, ...(zoomed ? [{ type: "slider", height: 18, bottom: 6 }] : [])], series };
  }
  /** Lines that go on from phase to phase: [{label, data: [[x, value, lowest, highest]], look, scatter, over}]. */
  function continued(shown, begin) {
    const found = new Map();
    for (const one of shown) {
      const label = one.curve.evaluation ? `${one.label} (evaluation)` : one.label;
      if (!found.has(label)) found.set(label, { label, data: [], look: one.look, scatter: one.curve.evaluation, over: null });
      const own = found.get(label), { data } = own;
      own.over ??= one.curve.over;
      // (a point without a value interrupts the line between two phases)
      if (data.length) data.push([data.at(-1)[0] + 0.5, null, null, null]);
      data.push(...points(one, begin));
    }
    return [...found.values()];
  }
  function numbers(most = MOST_ROWS) {
    const banded = lines.some(({ curve }) => curve.over), [, low, high] = columns;
    const rows = lines.flatMap(({ label, curve }) => Array.from(curve.x, (x, i) => [names.get(curve.phase) ?? String(curve.phase), label,
      curve.evaluation ? "evaluation" : "episode", x, curve.mean[i], curve.sum[i],
      ...(banded ? [value(curve[low]?.[i]) ?? "–", value(curve[high]?.[i]) ?? "–"] : [])]));
    rows.push(...unfinished.map(({ label, episode }) => [names.get(episode.phase) ?? String(episode.phase), label, episode.label, episode.x,
      episode.mean, episode.sum, ...(banded ? ["–", "–"] : [])]));
    return { columns: ["phase", "curve", "kind", "episode", "mean", "sum", ...(banded ? [`lowest ${fold}`, `highest ${fold}`] : [])],
      rows: rows.slice(0, most) };
  }
  const thin = lines.find(({ curve }) => curve.episodes > curve.x.length);
  const over = [...new Set(lines.map(({ curve }) => curve.over).filter(Boolean))];
  const notes = [over.length > 0 && `mean over ${over.join(" or ")}; band: lowest to highest`,
    thin && `${count(thin.curve.episodes, "episode")}, of which ${number(thin.curve.x.length)} with all extremes are drawn`].filter(Boolean);
  return h(Figure, { title, note: notes.join("; "), description: `${title} by episode`, height, options, numbers });
}
