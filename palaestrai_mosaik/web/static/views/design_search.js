// A search: what became of its settings, the best of them so far, and the way to them.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { COLOURS, colour, Figure } from "web/chart";
import { has } from "web/data";
import { count, number } from "web/format";
import { Status, table } from "web/page";
import { shown, useResource } from "web/resource";
import { text } from "web/views/design_model";
import { More, RunLink, useShown } from "web/views/design_selection";
import { Pictures } from "web/views/search_pictures";

/** what a state of a setting looks like: that of a run */
const LOOK = { running: "running", complete: "finished", pruned: "pruned", failed: "failed", retried: "failed", lost: "lost" };

const finite = (column) => Array.from(column, (one) => one ?? NaN);

export function Search({ model }) {
  const answer = useResource("design/search", { since: ({ version }) => ({ since: version }), seconds: 2, take: columns });
  const open = useSignal(false);
  return h("section", { class: "design-search" }, h("h2", {}, "Search"), shown([answer], () => {
    const search = answer.value.value;
    return [
      h(Summary, search),
      search.history.number.length > 0 && h(History, { model, search }),
      h(Best, { model, search }),
      has("design/search/slices") && h(Pictures, { version: () => answer.value.value?.version }),
      h("details", { class: "settings", ontoggle: (event) => { open.value = event.target.open; } }, h("summary", {}, "All settings as a table"),
        open.value && h(Settings, { model, search })),
    ];
  }));
}

/** An answer with its columns of numbers; the answer before it, where nothing has changed. */
function columns(read, last) {
  if (read.unchanged) return last;
  const { settings, history } = read;
  return { ...read, settings: { ...settings, values: settings.values.map(finite), why: new Map(settings.why) },
    history: { ...history, number: Array.from(history.number), value: finite(history.value), best: finite(history.best) } };
}

/** The best value of the only objective so far, in the search itself. */
function bestSoFar({ history, objectives }) {
  if (objectives.length > 1 || !history.number.length) return null;
  const value = history.best.at(-1);
  return { value, setting: history.number[history.value.indexOf(value)] };
}

function Summary(search) {
  const { counts, budget, runs, steps, objectives } = search, best = bestSoFar(search);
  const tile = (name, value, said) => h("div", { "data-tile": name }, h("b", {}, value), h("span", {}, said));
  const spent = (name, value) => tile(name, number(value), budget[name] === undefined ? name.slice(0, value === 1 ? -1 : undefined)
    : `of ${number(budget[name])} ${name}`);
  return [
    h("div", { class: "tiles" },
      tile("settings", number(counts.complete), counts.complete === 1 ? "complete setting" : "complete settings"),
      counts.running > 0 && tile("settings-running", number(counts.running), "in progress"),
      counts.pruned > 0 && tile("settings-pruned", number(counts.pruned), "pruned"),
      counts.failed > 0 && tile("settings-failed", number(counts.failed), "failed"),
      counts.lost > 0 && tile("settings-lost", number(counts.lost), counts.lost === 1 ? "lost its results" : "lost their results"),
      counts.retried > 0 && tile("settings-retried", number(counts.retried), "failed and tried again"),
      spent("runs", runs), spent("steps", steps),
      budget.hours !== undefined && tile("hours", number(budget.hours), budget.hours === 1 ? "hour at most" : "hours at most"),
      best && tile("best", number(best.value, 6), `best ${objectives[0].name} (setting ${best.setting})`)),
    budget.runs !== undefined && h("progress", { max: budget.runs, value: Math.min(runs, budget.runs), "aria-label": "Runs of the budget" }),
  ];
}

function History({ model, search: { objectives: [{ name, better }], history } }) {
  const title = `${name}: the best setting so far (${better} is better)`;
  const points = (column) => history[column].map((one, i) => ({ value: [history.steps[i], one], setting: history.number[i] }));
  return h(Figure, {
    title, description: `${title}, over the steps that all settings took until then`, height: 300,
    options: ({ axis }) => ({
      grid: { left: 12, right: 24, top: 36, bottom: 34, containLabel: true },
      legend: { top: 0, textStyle: { color: colour("text") }, data: ["best so far", "settings"] },
      tooltip: { trigger: "item", formatter: ({ data, seriesName }) => [`${seriesName}: ${name} = ${number(data.value[1], 6)}`,
        `setting ${data.setting}, after ${count(data.value[0], "step")}`, ...valuesOf(model, data.setting)].join("\n") },
      xAxis: { ...axis, type: "value", name: "steps of environments", nameLocation: "middle", nameGap: 26, min: 0 },
      yAxis: { ...axis, axisLine: { ...axis.axisLine, onZero: false }, type: "value", scale: true, name, nameTextStyle: { ...axis.nameTextStyle, align: "left" },
        axisLabel: { ...axis.axisLabel, formatter: (value) => number(value, 4) } },
      dataZoom: [{ type: "inside" }],
      series: [
        { type: "line", id: "best", name: "best so far", step: "end", symbol: "none", lineStyle: { width: 2 }, itemStyle: { color: COLOURS[0] }, data: points("best") },
        { type: "scatter", id: "settings", name: "settings", symbolSize: 7, itemStyle: { color: COLOURS[1], opacity: 0.6 }, data: points("value") },
      ],
    }),
    numbers: () => ({
      columns: ["Setting", "Runs", "Steps", name, "Best so far"],
      rows: history.number.map((one, i) => [one, history.runs[i], history.steps[i], history.value[i], history.best[i]]),
    }),
  });
}

// the journal may be ahead of the folder: a setting that was only just proposed has no row yet
const cellOf = (model, setting) => (setting < model.rows() ? setting * model.facts.repetitions : null);
const valuesOf = (model, setting) => (cellOf(model, setting) === null ? [] : model.values(cellOf(model, setting)));

/** The columns of a table of settings that say which setting it is, and its factors. */
function settingColumns(model) {
  const cell = (setting) => cellOf(model, setting);
  return [{ title: "Setting", number: true, value: (setting) => (cell(setting) === null ? number(setting)
    : h(RunLink, { model, cell: cell(setting), name: number(setting) })) },
  model.factors.map((axis) => ({ title: axis.name, number: !axis.levels,
    value: (setting) => (cell(setting) === null ? "" : text(axis, axis.value(cell(setting)))) }))];
}

function Best({ model, search: { best, objectives } }) {
  if (!best.length) return null;
  const [setting, factors] = settingColumns(model), names = objectives.map((one) => one.name);
  const entries = new Map(best.map((entry) => [entry.number, entry]));
  const fresh = best.some((entry) => Object.keys(entry.confirmed).length);
  const confirmed = (entry, name) => {
    const figures = entry.confirmed[name];
    if (!figures) return "";
    const finished = figures.seeds < figures.planned ? `${figures.seeds} of ${figures.planned} finished` : `n=${figures.seeds}`;
    return figures.seeds ? `${number(figures.mean)} ± ${number(figures.std)} (${finished})` : finished;
  };
  const lost = best.some((entry) => Object.values(entry.confirmed).some((figures) => figures.seeds < figures.planned));
  return h("div", { class: "design-best" },
    h("h3", {}, names.length === 1 ? "Best settings" : "Pareto front"), table([
      setting, ...factors,
      ...names.map((name) => ({ title: name, number: true, value: (one) => number(entries.get(one).values[name], 6) })),
      ...(fresh ? names.map((name) => ({ title: `${name}, fresh seeds`, value: (one) => confirmed(entries.get(one), name) })) : []),
    ], [...entries.keys()]),
    h("p", { class: "quiet" }, fresh ? `Fresh seeds: mean ± standard deviation over seeds that the search has not used${lost
      ? ", of the runs that finished. A setting that lost runs ranks behind all that lost none." : "; trust these."}`
      : "The search has chosen them by these figures, which may therefore be too good."));
}

function Settings({ model, search: { settings, states, objectives } }) {
  const visible = useShown(), [setting, factors] = settingColumns(model);
  const numbers = Array.from(settings.number), state = (one) => states[settings.state[one]];
  const again = new Map(Array.from(settings.retries, (failed, one) => [failed, one]));
  const remark = (one) => [
    settings.why.get(one),
    settings.first[one] >= 0 && !settings.why.has(one) && `the same as setting ${settings.first[one]}`,
    settings.retries[one] >= 0 && `tries setting ${settings.retries[one]} again`,
    state(one) === "retried" && (again.has(one) ? `tried again as setting ${again.get(one)}` : "not tried again yet"),
  ].filter(Boolean).join("; ");
  return h("div", {}, table([
    setting,
    { title: "State", value: (one) => h(Status, { of: state(one), look: LOOK[state(one)] }) },
    ...objectives.map(({ name }, i) => ({ title: name, number: true, value: (one) => number(settings.values[i][one], 6) })),
    { title: "Runs", number: true, value: (one) => number(settings.runs[one]) },
    { title: "Steps", number: true, value: (one) => number(settings.steps[one]) },
    ...factors,
    { title: "Remark", value: remark },
  ], numbers.slice(-visible.value).reverse(), `${count(numbers.length, "setting")}, the newest first`), h(More, { shown: visible, of: numbers.length }));
}
