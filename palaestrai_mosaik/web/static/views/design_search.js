// A search: what became of its settings, the best of them so far, and the way to them.

import { get } from "web/data";
import { COLOURS, colour, figure } from "web/chart";
import { fill, h, link, table } from "web/dom";
import { number } from "web/format";
import { text } from "web/views/design_model";

/** rows of the table of settings that are shown at first, and more each time they are asked for */
const STEP = 50;
/** what a state of a setting looks like: that of a run */
const LOOK = { running: "running", complete: "finished", pruned: "pruned", failed: "failed", retried: "failed", lost: "lost" };

const finite = (column) => Array.from(column, (one) => one ?? NaN);

/** Returns {element, update(), close()}; `update` asks what has become of the search since, and shows it. */
export function searched(model, signal) {
  const head = h("div", {}), chart = h("div", {}), best = h("div", { class: "design-best" }), list = h("div", {});
  const all = h("details", {}, h("summary", {}, "All settings as a table"), list);
  const element = h("div", {}, head, chart, best, all);
  let found = null, way = null, shown = STEP;
  all.addEventListener("toggle", () => all.open && drawList());

  async function update() {
    const read = await get("design/search", found ? { since: found.version } : {}, signal);
    if (read.unchanged) return;
    const { settings, history } = read;
    found = { ...read, settings: { ...settings, values: settings.values.map(finite), why: new Map(settings.why) },
      history: { ...history, number: Array.from(history.number), value: finite(history.value), best: finite(history.best) } };
    summarise();
    if (found.history.number.length) {
      if (way) way.refresh();
      else {
        way = historyFigure();
        fill(chart, way.element);
        way.update();
      }
      way.list();
    }
    drawBest();
    if (all.open) drawList();
  }

  function summarise() {
    const { counts, budget, runs, steps } = found;
    const tile = (name, value, text) => h("div", { "data-tile": name }, h("b", {}, value), h("span", {}, text));
    const spent = (name, value) => tile(name, number(value), budget[name] === undefined ? name : `of ${number(budget[name])} ${name}`);
    fill(head, h("div", { class: "tiles" },
      tile("settings", number(counts.complete), counts.complete === 1 ? "complete setting" : "complete settings"),
      counts.running > 0 && tile("settings-running", number(counts.running), "in progress"),
      counts.pruned > 0 && tile("settings-pruned", number(counts.pruned), "pruned"),
      counts.failed > 0 && tile("settings-failed", number(counts.failed), "failed"),
      counts.lost > 0 && tile("settings-lost", number(counts.lost), "lost their results"),
      counts.retried > 0 && tile("settings-retried", number(counts.retried), "failed and tried again"),
      spent("runs", runs), spent("steps", steps),
      budget.hours !== undefined && tile("hours", number(budget.hours), "hours at most"),
      bestSoFar() && tile("best", number(bestSoFar().value, 6), `best ${found.objectives[0].name} (setting ${bestSoFar().setting})`)),
    budget.runs !== undefined && h("progress", { max: budget.runs, value: Math.min(runs, budget.runs), "aria-label": "Runs of the budget" }));
  }
  /** The best value of the only objective so far, in the search itself. */
  function bestSoFar() {
    const { history, objectives } = found;
    if (objectives.length > 1 || !history.number.length) return null;
    const value = history.best.at(-1);
    return { value, setting: history.number[history.value.indexOf(value)] };
  }

  function historyFigure() {
    const [{ name, better }] = found.objectives;
    const title = `${name}: the best setting so far (${better} is better)`;
    const points = (column) => found.history[column].map((one, i) => ({ value: [found.history.steps[i], one], setting: found.history.number[i] }));
    return figure({
      title, description: `${title}, over the steps that all settings took until then`, height: 300,
      options: ({ axis }) => ({
        grid: { left: 12, right: 24, top: 36, bottom: 34, containLabel: true },
        legend: { top: 0, textStyle: { color: colour("text") }, data: ["best so far", "settings"] },
        tooltip: { trigger: "item", formatter: ({ data, seriesName }) => [`${seriesName}: ${name} = ${number(data.value[1], 6)}`,
          `setting ${data.setting}, after ${number(data.value[0])} steps`, ...values(data.setting)].join("\n") },
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
        rows: found.history.number.map((one, i) => [one, found.history.runs[i], found.history.steps[i], found.history.value[i], found.history.best[i]]),
      }),
    });
  }

  // (the journal may be ahead of the folder: a setting that was only just proposed has no row yet)
  const cell = (setting) => (setting < model.rows() ? setting * model.facts.repetitions : null);
  const values = (setting) => (cell(setting) === null ? [] : model.values(cell(setting)));
  function settingLink(setting) {
    const instance = cell(setting) === null ? null : model.instanceOf(cell(setting));
    return instance === null ? number(setting) : link(`#/run/${encodeURIComponent(instance)}`, number(setting));
  }
  const factorColumns = () => model.factors.map((axis) => ({ title: axis.name, number: !axis.levels,
    value: (setting) => (cell(setting) === null ? "" : text(axis, axis.value(cell(setting)))) }));

  function drawBest() {
    const names = found.objectives.map((one) => one.name), one = names.length === 1;
    const told = new Map(found.best.map((entry) => [entry.number, entry]));
    const fresh = found.best.some((entry) => Object.keys(entry.confirmed).length);
    const confirmed = (entry, name) => {
      const figures = entry.confirmed[name];
      if (!figures) return "";
      const finished = figures.seeds < figures.planned ? `${figures.seeds} of ${figures.planned} finished` : `n=${figures.seeds}`;
      return figures.seeds ? `${number(figures.mean)} ± ${number(figures.std)} (${finished})` : finished;
    };
    const lost = found.best.some((entry) => Object.values(entry.confirmed).some((figures) => figures.seeds < figures.planned));
    fill(best, found.best.length > 0 && [h("h3", {}, one ? "Best settings" : "Pareto front"), table([
      { title: "Setting", number: true, value: settingLink }, ...factorColumns(),
      ...names.map((name) => ({ title: name, number: true, value: (setting) => number(told.get(setting).values[name], 6) })),
      ...(fresh ? names.map((name) => ({ title: `${name}, fresh seeds`, value: (setting) => confirmed(told.get(setting), name) })) : []),
    ], [...told.keys()]),
    h("p", { class: "quiet" }, fresh ? `Fresh seeds: mean ± standard deviation over seeds that the search has not used${lost
      ? ", of the runs that finished. A setting that lost runs ranks behind all that lost none." : "; trust these."}`
      : "The search has chosen them by these figures, which may therefore be too good.")]);
  }
  function drawList() {
    const { settings, states, objectives } = found;
    const numbers = Array.from(settings.number), state = (setting) => states[settings.state[setting]];
    const rows = numbers.slice(-shown).reverse();
    const again = new Map(Array.from(settings.retries, (failed, setting) => [failed, setting]));
    const remark = (setting) => [
      settings.why.get(setting),
      settings.first[setting] >= 0 && !settings.why.has(setting) && `the same as setting ${settings.first[setting]}`,
      settings.retries[setting] >= 0 && `tries setting ${settings.retries[setting]} again`,
      state(setting) === "retried" && (again.has(setting) ? `tried again as setting ${again.get(setting)}` : "not tried again yet"),
    ].filter(Boolean).join("; ");
    fill(list, table([
      { title: "Setting", number: true, value: settingLink },
      { title: "State", value: (setting) => h("span", { class: `status ${LOOK[state(setting)]}` }, state(setting)) },
      ...objectives.map(({ name }, i) => ({ title: name, number: true, value: (setting) => number(settings.values[i][setting], 6) })),
      { title: "Runs", number: true, value: (setting) => number(settings.runs[setting]) },
      { title: "Steps", number: true, value: (setting) => number(settings.steps[setting]) },
      ...factorColumns(),
      { title: "Remark", value: remark },
    ], rows, `${number(numbers.length)} settings, the newest first`));
    if (numbers.length > shown) {
      list.append(h("p", {}, h("button", { type: "button", onclick: () => { shown += STEP; drawList(); } },
        `Show ${Math.min(STEP, numbers.length - shown)} more of ${number(numbers.length - shown)}`)));
    }
  }
  return { element, update, close: () => way?.close() };
}
