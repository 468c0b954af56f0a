// Several runs side by side: what they gave, their curves overlaid, and where their documents differ.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { look } from "web/chart";
import { CurveFigure, FoldChoice, groups } from "web/curves";
import { get, has, offline } from "web/data";
import { count, duration, number } from "web/format";
import { keepChoices, Status, table, useTitle } from "web/page";
import { shown, useResource } from "web/resource";

export function View({ parts: [asked], query: choices }) {
  useTitle("Comparison");
  const answer = useResource("compare", {
    query: () => ({ runs: asked }),
    // a page in one file has curves without statistics alone
    take: async (now, _, stopped) => ({ ...now, curves: await Promise.all(now.runs.map(({ run }) =>
      get(`run/${run}/curves`, offline ? {} : { statistics: 0 }, stopped))) }),
  });
  return [h("h1", {}, `${count(asked.split(",").length, "run")} compared`), shown([answer], () => h(Comparison, { ...answer.value.value, asked, choices }))];
}

function Comparison({ runs, differences, outcomes, curves: found, fold: usual, asked, choices }) {
  const chosen = useSignal(choices.get("fold")), fold = ["sum", "mean"].includes(chosen.value) ? chosen.value : usual;
  // runs of one document are told apart by their seeds, others by their uids
  const labels = runs.map(({ document, seed, run }, i) => {
    const same = runs.filter((one) => one.document === document && one.seed === seed).length > 1;
    return `${i + 1}: ${document}, seed ${seed}${same ? ` (${run})` : ""}`;
  });
  const curves = found.map((one) => one.curves.filter((curve) => curve.kind !== "statistic"));
  // runs by colour, agents by dashes
  const several = new Set(curves.flat().map((one) => one.agent)).size > 1;
  const drawn = (i, { agent, colour }) => ({ label: several ? `${labels[i]}, ${agent}` : labels[i], look: several ? look(i, colour) : look(i) });
  const all = curves.flatMap((own, i) => own.map((curve) => ({ ...drawn(i, curve), curve })));
  const unfinished = found.flatMap((one, i) => one.unfinished.filter(({ kind }) => kind !== "statistic")
    .map((episode) => ({ ...drawn(i, episode), episode })));
  const phases = Array.from(found[0].phases.phase, (phase, i) => ({ phase, name: found[0].phases.name[i] }));
  return [
    table([{ title: "", value: (row) => row.i + 1 },
      { title: "run", value: ({ run }) => (has(`run/${run}`) ? h("a", { href: `#/run/${encodeURIComponent(run)}` }, run) : run) },
      { title: "document", value: (row) => row.document }, { title: "seed", value: (row) => String(row.seed), number: true },
      { title: "status", value: (row) => h(Status, { of: row.status }) },
      { title: "duration", number: true, value: (row) => duration(row.duration) },
      { title: "episodes", number: true, value: (row) => number(row.episodes) }, { title: "steps", number: true, value: (row) => number(row.steps) }],
    runs.map((row, i) => ({ ...row, i })), "The runs"),
    sideBySide(runs),
    h("h2", {}, "Outcomes"), h("div", { class: "controls" }, h(FoldChoice, { fold, chosen: (statistic) => {
      chosen.value = statistic;
      keepChoices(`#/compare/${asked.split(",").map(encodeURIComponent).join(",")}`, new URLSearchParams({ fold: statistic }));
    } })),
    outcomes.length ? outcomeTable(runs, outcomes, fold) : h("p", { class: "quiet" }, "No episode has ended."),
    h("h2", {}, "Curves"), groups(all.map((one) => one.curve), unfinished.map(({ episode }) => episode)).map((group) => h(CurveFigure, {
      key: group.title, title: group.title, phases, fold, height: 380, lines: all.filter((one) => group.curves.includes(one.curve)),
      unfinished: unfinished.filter(({ episode }) => group.unfinished.includes(episode)) })),
    h("h2", {}, "Where their documents differ"),
    differences.length ? table([{ title: "path", value: (row) => row.path }, ...runs.map((_, i) => ({ title: String(i + 1),
      value: (row) => (row.values[i] === null ? "" : JSON.stringify(row.values[i])) }))], differences, "Differences of the documents")
      : h("p", { class: "quiet" }, "Nowhere."),
  ];
}

function outcomeTable(runs, outcomes, fold) {
  const several = outcomes.some((row) => row.episodes.some((size) => size > 1));
  const column = (name, of, i) => ({ title: of ? `${i + 1}, ${of}` : String(i + 1), number: true, value: (row) => cell(row[name], i) });
  return table([
    { title: "phase", value: (row) => row.phase }, { title: "agent", value: (row) => row.agent },
    { title: "what", value: (row) => `${row.kind === "objective" ? "objective" : `reward ${row.name}`}${row.evaluation ? ", evaluation" : ""}` },
    ...(several ? runs.map((_, i) => column(fold, "all episodes", i)) : []),
    ...runs.map((_, i) => column(`last_${fold}`, several ? "last episode" : "", i)),
  ], outcomes, `The ${fold === "sum" ? "return (sum)" : "mean"} of an episode's values${several ? ", as the mean over all episodes of a phase, and of its last episode" : ""}. `
    + "In brackets: the difference to run 1.");
}

/** A value of a run, and its difference to that of the first run. */
function cell(values, i) {
  const [first, own] = [values[0], values[i]];
  if (i === 0 || !Number.isFinite(first ?? NaN) || !Number.isFinite(own ?? NaN)) return number(own);
  const difference = own - first;
  return [number(own), h("span", { class: "quiet" }, ` (${difference > 0 ? "+" : ""}${number(difference, 3)})`)];
}

/** A link to the grids of the first two runs that have one. */
function sideBySide(runs) {
  const [first, second] = runs.filter(({ run, grid }) => grid && has(`run/${run}/grid`)).map(({ run }) => encodeURIComponent(run));
  return second && h("p", {}, h("a", { href: `#/run/${first}/grid?other=${second}` }, "Their grids side by side, in step"));
}
