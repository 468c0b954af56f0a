// Robustness of the levels of factors over scenarios, as the design asks for it.

import { h } from "preact";
import { rowsOf } from "web/data";
import { number } from "web/format";
import { between, LevelPoints } from "web/level_chart";
import { cautions, table } from "web/page";

const SAYS = {
  regret: "The regret of a level in a scenario is its distance to the level that is best there: what a wrong decision costs. "
    + "The mean over all scenarios, what it does not exceed in 90 % of them, and the worst one.",
  value: "Levels share no scenarios, so there is no regret: the mean over the scenarios of a level, what is reached in 90 % of them, and the worst one.",
  satisficing: "The share of the scenarios in which the condition holds.",
};
const AXIS = { regret: "Regret", value: "Value", satisficing: "Share of the scenarios" };

/** What is shown of one outcome, or of one condition. */
export function robustness(one) {
  const levels = rowsOf(one.levels).map((row) => ({ ...row, n: row.scenarios }));
  const share = `${number(one.confidence * 100)} %`;
  return [h("h3", {}, `Robustness: ${one.title}`, one.better ? ` (${one.better} is better)` : ""), cautions(one.warnings),
    h("p", { class: "quiet" }, SAYS[one.drawn]),
    h(LevelPoints, { title: `Robustness of ${one.title}`, of: AXIS[one.drawn], levels, measures: one.metrics, share, counted: "Scenarios" }),
    table(columns(levels), levels, `Robustness of ${one.title}; intervals with confidence ${share} are those of resampled scenarios`)];
}

/** The columns of the metrics that there are. */
function columns(levels) {
  const metrics = Object.keys(levels[0] ?? {}).filter((name) => `${name}_low` in levels[0]);
  return [
    { title: "Level", value: (row) => row.level }, { title: "Scenarios", number: true, value: (row) => number(row.scenarios) },
    ...(levels.some((row) => row.lost) ? [{ title: "Lost", number: true, value: (row) => number(row.lost) }] : []),
    ...metrics.flatMap((name) => [
      { title: TITLES[name] ?? name, number: true, value: (row) => number(row[name]) },
      { title: "Interval", value: (row) => between(row[`${name}_low`], row[`${name}_high`]) },
    ]),
    { title: "Best by", value: (row) => row.best.split(", ").map((name) => (TITLES[name] ?? name).toLowerCase()).join(", ") },
  ];
}

const TITLES = {
  mean: "Mean", worst: "Worst", percentile: "90 % at least", std: "Std", mean_variance: "Mean-variance",
  regret_max: "Greatest regret", regret_percentile: "Regret, 90 %", regret_mean: "Mean regret", satisficing: "Share",
};
