// What a design is analysed for: indices, comparisons, boxes and robustness, which the server computes when they are asked for.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { COLOURS, colour, Figure } from "web/chart";
import { offline, rowsOf } from "web/data";
import { count, number } from "web/format";
import { between, known, LevelPoints } from "web/level_chart";
import { cautions, table } from "web/page";
import { useResource } from "web/resource";
import { boxes } from "web/views/design_boxes";
import { robustness } from "web/views/design_robustness";

const MEANS = [["mean", "Mean"], ["iqm", "Interquartile mean"]];

export function Analysis({ model }) {
  void model.revision.value;
  const asked = useSignal(offline ? 1 : 0), busy = useSignal(false);
  const results = useResource("design/analysis", {
    query: () => (asked.value ? {} : null), changes: () => asked.value,
    take(answer) {
      busy.value = false;
      return answer;
    },
  });
  const waiting = busy.value && results.error.value === null, { value } = results.value;
  return h("div", {},
    !offline && h("div", { class: "controls" }, h("button", { type: "button", disabled: waiting, onclick: () => {
      busy.value = true;
      asked.value += 1;
    } }, "Analyse")),
    h("p", { class: "quiet", "aria-live": "polite" }, waiting ? h(Progress, {}) : said(value, model)),
    results.error.value && h("p", { class: "problem", role: "alert" }, results.error.value),
    h("div", { class: "design-analysis", "aria-busy": waiting ? "true" : undefined }, value && h(Results, value)));
}

function said(results, model) {
  if (!results) return "Indices, comparisons, boxes and robustness are computed here; with many runs it takes some seconds.";
  return results.finished === model.finished ? "" : "More runs have ended since: analyse them again.";
}

/** How far the analysis is; what goes wrong is what the analysis itself says. */
function Progress() {
  const progress = useResource("design/analysis/progress", { seconds: 0.5 }), { what, done, total } = progress.value.value ?? {};
  return what ? `${what}: ${number(done)} of ${count(total, "resample")}` : "reading the outcomes";
}

function Results({ runs, not_finite: infinite, not_collected: left, notes, outcomes, methods, comparisons, discoveries, robustness: robust,
  search }) {
  const lost = [["failed", runs.failed], ["not finished yet", runs.missing], ...infinite.map(([name, n]) => [`without a finite ${name}`, n])]
    .filter(([, n]) => n).map(([what, n]) => `${number(n)} ${what}`);
  const executed = runs.executed < runs.runs - runs.missing ? ` (${number(runs.executed)} executed)` : "";
  return [
    h("p", {}, `${count(runs.runs, "run")}${executed}${lost.length ? `, of which ${lost.join(", ")}` : ""}.`),
    cautions([...(left ? [left] : []), ...notes]),
    outcomes.length > 0 && table(MOMENTS, outcomes, "Outcomes of the finished runs"),
    search && importances(search), methods.map(method), comparisons.map(comparison),
    discoveries.map((one) => h("section", {}, boxes(one))), robust.map((one) => h("section", {}, robustness(one))),
  ];
}

const MOMENTS = [{ title: "Outcome", value: (row) => row.outcome },
  ...["mean", "std", "min", "median", "max"].map((name) => ({ title: name[0].toUpperCase() + name.slice(1), number: true,
    value: (row) => number(row[name]) })),
  { title: "Not finite", number: true, value: (row) => number(row.not_finite ?? 0) }];

/** What a search says as a whole, and how much each factor decides whether a setting is among the best tenth (PED-ANOVA). */
function importances({ summary, importances: shares }) {
  return h("section", {}, h("h3", {}, "Search"), h("p", {}, summary), Object.entries(shares).map(([outcome, factors]) => {
    const rows = Object.entries(factors).map(([factor, figures]) => ({ factor, ...figures })), title = `${outcome}: importances of the factors`;
    return [h(Figure, {
      key: outcome, title, description: `${title}: ${rows.map(({ factor, share }) => `${factor} ${number(share, 3)}`).join(", ")}`,
      height: 70 + 34 * rows.length,
      options: ({ axis }) => ({
        grid: { left: 12, right: 48, top: 12, bottom: 34, containLabel: true }, legend: { show: false },
        xAxis: { ...axis, type: "value", min: 0, max: 1, name: "share in what makes a setting one of the best tenth", nameLocation: "middle", nameGap: 24 },
        yAxis: { ...axis, type: "category", inverse: true, data: rows.map(({ factor }) => factor), splitLine: { show: false },
          axisLabel: { ...axis.axisLabel, hideOverlap: false, width: 140, overflow: "truncate" } },
        series: [{ type: "bar", barMaxWidth: 22, itemStyle: { color: COLOURS[0], opacity: 0.8 }, data: rows.map(({ share }) => share),
          label: { show: true, position: "right", color: colour("text"), formatter: ({ value }) => number(value, 3) } }],
      }),
    }), table([{ title: "Factor", value: (row) => row.factor }, { title: "Importance", number: true, value: (row) => number(row.share) },
      { title: "p (adjusted)", number: true, value: (row) => number(row.p_adjusted, 3) }], rows, title)];
  }));
}

function method(one) {
  const rows = rowsOf(one.frame), title = `${one.outcome}: ${one.title}`;
  const head = [h("h3", {}, title), h("p", { class: "quiet" }, one.says, ` ${count(one.used, "run")} used`,
    one.executed < one.used && ` (${number(one.executed)} executed)`, one.lost > 0 && `, ${number(one.lost)} lost`, ".")];
  const about = one.lost > 0 ? [`${count(one.lost, "run")} ${one.lost === 1 ? "is" : "are"} lost: what is left may not stand for all`] : [];
  if (one.refused) return h("section", {}, head, cautions([`not computed: ${one.refused}`, ...one.notes]));
  return h("section", {}, head, cautions([...about, ...one.notes]), bars(one, rows, title), indexTable(one, rows, title));
}

function comparison(one) {
  const levels = rowsOf(one.levels), pairs = rowsOf(one.pairs), share = `${number(one.confidence * 100)} %`;
  return h("section", {}, h("h3", {}, one.title, one.better ? ` (${one.better} is better)` : ""), cautions(one.warnings),
    one.constant !== null ? h("p", {}, `All runs gave ${number(one.constant)}: there is nothing to compare.`)
      : [h(LevelPoints, { title: one.title, of: one.outcome, levels, measures: MEANS, share }),
        table(levelColumns(one), levels, `Levels; intervals with confidence ${share}`),
        table(PAIRS, pairs, `Pairs of levels; intervals with confidence ${share}`)],
    h("details", {}, h("summary", {}, "How it was compared"), h("ul", {}, one.notes.map((note) => h("li", {}, note)))));
}

/** The indices of each factor with their intervals, the most important factor at the top. */
function bars(one, rows, title) {
  const single = rows.filter((row) => row.factor2 === "");
  const names = one.ranked, indices = one.bars.filter((index) => single.some((row) => row.index === index));
  const at = (index, name) => single.find((row) => row.index === index && row.factor === name);
  return h(Figure, {
    description: `${title}. Bars of ${indices.join(" and ")} with intervals: ${names.map((name) => `${name} ${number(at(one.leading, name)?.value, 3)}`).join(", ")}`,
    height: 70 + 34 * Math.max(1, names.length) * Math.max(1, indices.length * 0.7),
    options: ({ axis }) => ({
      grid: { left: 12, right: 24, top: 36, bottom: 12, containLabel: true },
      legend: { top: 0, textStyle: { color: colour("text") }, data: indices },
      tooltip: { trigger: "item", formatter: (item) => `${item.seriesName} of ${names[item.dataIndex]}: ${number(at(item.seriesName, names[item.dataIndex])?.value)} `
        + between(at(item.seriesName, names[item.dataIndex])?.low, at(item.seriesName, names[item.dataIndex])?.high) },
      xAxis: { ...axis, type: "value", axisLabel: { ...axis.axisLabel, formatter: (value) => number(value, 3) } },
      yAxis: { ...axis, type: "category", inverse: true, data: names, splitLine: { show: false },
        axisLabel: { ...axis.axisLabel, hideOverlap: false, width: 140, overflow: "truncate" } },
      series: indices.flatMap((index, i) => [
        { type: "bar", name: index, barMaxWidth: 22, itemStyle: { color: COLOURS[i], opacity: 0.8 }, data: names.map((name) => at(index, name)?.value ?? NaN),
          markLine: index === one.leading && one.irrelevant !== null ? noInfluence(one.irrelevant) : undefined },
        intervals(index, names.map((name, k) => [k, at(index, name)?.low ?? NaN, at(index, name)?.high ?? NaN]), i, indices.length),
      ]),
    }),
    numbers: () => ({
      columns: ["Index", "Factor", "With", "Value", "Low", "High"],
      rows: rows.map((row) => [row.index, row.factor, row.factor2, row.value, row.low, row.high]),
    }),
  });
}

/** The line of a method that says what a factor without influence reaches. */
function noInfluence(value) {
  return { silent: true, symbol: "none", lineStyle: { color: colour("text"), type: "dashed" },
    label: { formatter: "without influence", color: colour("text"), position: "insideEndTop" }, data: [{ xAxis: value }] };
}

/** A series of horizontal intervals over the bars of the i-th of `size` indices: [place, low, high]. */
function intervals(name, data, i, size) {
  return {
    type: "custom", name, silent: true, z: 5, data, encode: { x: [1, 2], y: 0 }, tooltip: { show: false },
    renderItem(params, api) {
      const low = api.value(1), high = api.value(2);
      if (Number.isNaN(low) || Number.isNaN(high)) return null;
      const [x1, middle] = api.coord([low, api.value(0)]), [x2] = api.coord([high, api.value(0)]);
      const layout = api.barLayout({ barMaxWidth: 22, count: size })[i];
      const y = middle + (layout ? layout.offsetCenter : 0);
      const line = (shape) => ({ type: "line", shape, style: { stroke: colour("text"), lineWidth: 1.4 } });
      return { type: "group", children: [line({ x1, y1: y, x2, y2: y }), line({ x1, y1: y - 4, x2: x1, y2: y + 4 }), line({ x1: x2, y1: y - 4, x2, y2: y + 4 })] };
    },
  };
}

function indexTable(one, rows, title) {
  const indices = [...new Set(rows.map((row) => row.index))], places = new Map();
  for (const row of rows) {
    const place = JSON.stringify([row.factor, row.factor2]);
    if (!places.has(place)) places.set(place, { factor: row.factor, factor2: row.factor2 });
    places.get(place)[`=${row.index}`] = row;
  }
  const pairs = rows.some((row) => row.factor2 !== "");
  return table([
    { title: "Factor", value: (row) => row.factor }, ...(pairs ? [{ title: "With", value: (row) => row.factor2 }] : []),
    ...indices.flatMap((index) => [
      { title: index, number: true, value: (row) => (row[`=${index}`] ? number(row[`=${index}`].value) : "") },
      ...(rows.some((row) => row.index === index && known(row.low))
        ? [{ title: "Interval", value: (row) => (row[`=${index}`] ? between(row[`=${index}`].low, row[`=${index}`].high) : "") }] : []),
    ]),
  ], [...places.values()], title);
}

function levelColumns(one) {
  const cell = (column) => [
    { title: column === "iqm" ? "IQM" : column, number: true, value: (row) => number(row[column]) },
    { title: "Interval", value: (row) => between(row[`${column}_low`], row[`${column}_high`]) },
  ];
  return [
    { title: "Level", value: (row) => row.level }, { title: "Runs", number: true, value: (row) => number(row.n) },
    { title: "Lost", number: true, value: (row) => number(row.lost) },
    ...(one.equal_settings ? [] : [{ title: "Settings", number: true, value: (row) => number(row.settings) }]),
    ...["mean", "iqm", "median"].flatMap(cell), { title: "Std", number: true, value: (row) => number(row.std) },
  ];
}

const PAIRS = [
  { title: "Pair", value: (row) => `${row.a} – ${row.b}` },
  { title: "n", number: true, value: (row) => (row.n === row.n_b ? number(row.n) : `${number(row.n)} and ${number(row.n_b)}`) },
  { title: "Lost", number: true, value: (row) => number(row.lost) },
  { title: "Difference", number: true, value: (row) => number(row.difference) },
  { title: "Interval", value: (row) => between(row.difference_low, row.difference_high) },
  { title: "p", number: true, value: (row) => number(row.p, 3) },
  { title: "p (Holm)", number: true, value: (row) => number(row.p_holm, 3) },
  { title: "Better", value: (row) => row.favours || "" },
  { title: "Improvement", number: true, value: (row) => number(row.improvement) },
  { title: "Interval", value: (row) => between(row.improvement_low, row.improvement_high) },
  { title: "p", number: true, value: (row) => number(row.improvement_p, 3) },
];
