// Several runs overlaid: their curves, and where their documents differ.

import { look } from "web/chart";
import { curveFigure, groups } from "web/curves";
import { get } from "web/data";
import { fill, h, link, table } from "web/dom";

export async function show(element, { parts, signal }) {
  const asked = parts[0];
  const { runs, differences } = await get("compare", { runs: asked }, signal);
  const found = await Promise.all(runs.map(({ run }) => get(`run/${run}/curves`, { statistics: 0 }, signal)));
  let fold = "mean";
  // runs of one document are told apart by their seeds, others by their uids
  const label = ({ document, seed, run }, i) => {
    const same = runs.filter((one) => one.document === document && one.seed === seed).length > 1;
    return `${i + 1}: ${document}, seed ${seed}${same ? ` (${run})` : ""}`;
  };
  const labels = runs.map(label);
  const agents = new Set(found.flatMap(({ curves }) => curves.map((one) => one.agent)));
  const all = found.flatMap(({ curves }, i) => curves.map((curve) => ({ label: agents.size > 1 ? `${labels[i]}, ${curve.agent}` : labels[i],
    curve, look: look(i) })));
  const phases = () => Array.from(found[0].phases.phase, (phase, i) => ({ phase, name: found[0].phases.name[i] }));
  const figures = groups(all.map((one) => one.curve)).map(({ title, curves }) => curveFigure({ title, phases, fold: () => fold, height: 380,
    lines: () => all.filter((one) => curves.includes(one.curve)) }));
  const choice = h("select", { onchange: () => { fold = choice.value; figures.forEach((one) => one.update()); } },
    h("option", { value: "mean" }, "mean"), h("option", { value: "sum" }, "sum"));
  fill(element, h("h1", {}, `${runs.length} runs compared`),
    table([{ title: "", value: (row) => row.i + 1 }, { title: "run", value: (row) => link(`#/run/${encodeURIComponent(row.run)}`, row.run) },
      { title: "document", value: (row) => row.document }, { title: "seed", value: (row) => String(row.seed), number: true },
      { title: "status", value: (row) => h("span", { class: `status ${row.status}` }, row.status) }],
    runs.map((row, i) => ({ ...row, i })), "The runs"),
    h("h2", {}, "Where their documents differ"),
    differences.length ? table([{ title: "path", value: (row) => row.path }, ...runs.map((_, i) => ({ title: String(i + 1),
      value: (row) => (row.values[i] === null ? "" : JSON.stringify(row.values[i])) }))], differences, "Differences of the documents")
      : h("p", { class: "quiet" }, "Nowhere."),
    h("h2", {}, "Curves"), h("div", { class: "controls" }, h("label", {}, "Of an episode's values, the", choice)),
    figures.map((one) => one.element));
  signal.addEventListener("abort", () => figures.forEach((one) => one.close()));
  figures.forEach((one) => one.update());
}
