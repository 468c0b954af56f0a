// Several runs side by side: what they gave, their curves overlaid, and where their documents differ.

import { look } from "web/chart";
import { curveFigure, groups } from "web/curves";
import { get, has, offline } from "web/data";
import { fill, h, link, table } from "web/dom";
import { duration, number } from "web/format";

export async function show(element, { parts, signal }) {
  const asked = parts[0];
  const { runs, differences, outcomes } = await get("compare", { runs: asked }, signal);
  // (a page in one file has curves without statistics alone)
  const found = await Promise.all(runs.map(({ run }) => get(`run/${run}/curves`, offline ? {} : { statistics: 0 }, signal)));
  let fold = "mean";
  // runs of one document are told apart by their seeds, others by their uids
  const label = ({ document, seed, run }, i) => {
    const same = runs.filter((one) => one.document === document && one.seed === seed).length > 1;
    return `${i + 1}: ${document}, seed ${seed}${same ? ` (${run})` : ""}`;
  };
  const labels = runs.map(label);
  const curves = found.map((one) => one.curves.filter((curve) => curve.kind !== "statistic"));
  // runs by colour, agents by dashes
  const agents = [...new Set(curves.flat().map((one) => one.agent))];
  const all = curves.flatMap((own, i) => own.map((curve) => ({ label: agents.length > 1 ? `${labels[i]}, ${curve.agent}` : labels[i],
    curve, look: agents.length > 1 ? look(i, agents.indexOf(curve.agent)) : look(i) })));
  const phases = () => Array.from(found[0].phases.phase, (phase, i) => ({ phase, name: found[0].phases.name[i] }));
  const figures = groups(all.map((one) => one.curve)).map(({ title, curves: own }) => curveFigure({ title, phases, fold: () => fold, height: 380,
    lines: () => all.filter((one) => own.includes(one.curve)) }));
  const choice = h("select", { onchange: () => { fold = choice.value; results(); figures.forEach((one) => one.update()); } },
    h("option", { value: "mean" }, "mean"), h("option", { value: "sum" }, "sum"));
  const gave = h("div", {});

  function results() {
    const several = outcomes.some((row) => row.episodes.some((count) => count > 1));
    const column = (name, of, i) => ({ title: of ? `${i + 1}, ${of}` : String(i + 1), number: true, value: (row) => cell(row[name], i) });
    fill(gave, outcomes.length ? table([
      { title: "phase", value: (row) => row.phase }, { title: "agent", value: (row) => row.agent },
      { title: "what", value: (row) => `${row.kind === "objective" ? "objective" : `reward ${row.name}`}${row.evaluation ? ", evaluation" : ""}` },
      ...(several ? runs.map((_, i) => column(fold, "all episodes", i)) : []),
      ...runs.map((_, i) => column(`last_${fold}`, several ? "last episode" : "", i)),
    ], outcomes, `The ${fold} of an episode's values${several ? ", as the mean over all episodes of a phase, and of its last episode" : ""}. `
      + "In brackets: the difference to run 1.") : h("p", { class: "quiet" }, "No episode has ended."));
  }

  fill(element, h("h1", {}, `${runs.length} runs compared`),
    table([{ title: "", value: (row) => row.i + 1 }, { title: "run", value: (row) => opened(row.run) },
      { title: "document", value: (row) => row.document }, { title: "seed", value: (row) => String(row.seed), number: true },
      { title: "status", value: (row) => h("span", { class: `status ${row.status}` }, row.status) },
      { title: "duration", number: true, value: (row) => duration(row.duration) },
      { title: "episodes", number: true, value: (row) => number(row.episodes) }, { title: "steps", number: true, value: (row) => number(row.steps) }],
    runs.map((row, i) => ({ ...row, i })), "The runs"),
    sideBySide(runs),
    h("h2", {}, "Outcomes"), h("div", { class: "controls" }, h("label", {}, "Of an episode's values, the", choice)), gave,
    h("h2", {}, "Curves"), figures.map((one) => one.element),
    h("h2", {}, "Where their documents differ"),
    differences.length ? table([{ title: "path", value: (row) => row.path }, ...runs.map((_, i) => ({ title: String(i + 1),
      value: (row) => (row.values[i] === null ? "" : JSON.stringify(row.values[i])) }))], differences, "Differences of the documents")
      : h("p", { class: "quiet" }, "Nowhere."));
  signal.addEventListener("abort", () => figures.forEach((one) => one.close()));
  results();
  figures.forEach((one) => one.update());
}

/** A value of a run, and its difference to that of the first run. */
function cell(values, i) {
  const [first, own] = [values[0], values[i]];
  if (i === 0 || !Number.isFinite(first ?? NaN) || !Number.isFinite(own ?? NaN)) return number(own);
  const difference = own - first;
  return [number(own), h("span", { class: "quiet" }, ` (${difference > 0 ? "+" : ""}${number(difference, 3)})`)];
}

function opened(run) {
  return has(`run/${run}`) ? link(`#/run/${encodeURIComponent(run)}`, run) : run;
}

/** A link to the grids of the first two runs that have one. */
function sideBySide(runs) {
  const [first, second] = runs.filter(({ run, grid }) => grid && has(`run/${run}/grid`)).map(({ run }) => encodeURIComponent(run));
  return second && h("p", {}, link(`#/run/${first}/grid?other=${second}`, "Their grids side by side, in step"));
}
