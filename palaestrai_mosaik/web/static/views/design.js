// A design: how far its runs are, what they gave, and what that says of its factors.

import { useSignal } from "@preact/signals";
import { h } from "preact";
import { useMemo } from "preact/hooks";
import { DesignActions } from "web/actions";
import { get } from "web/data";
import { count, duration, number } from "web/format";
import { Status, table, useTitle } from "web/page";
import { shown, useResource } from "web/resource";
import { Analysis } from "web/views/design_analysis";
import { Matrix } from "web/views/design_matrix";
import { createModel, FAILED } from "web/views/design_model";
import { Parallel } from "web/views/design_parallel";
import { drawable, Scatter } from "web/views/design_scatter";
import { Search } from "web/views/design_search";
import { bestFirst, createSelection, RangeInputs, RunLink, RunTable } from "web/views/design_selection";

const STOPPED = ["interrupted", "lost", "node failed", "cancelled"];
const LISTED = 200;

export function View({ store }) {
  useTitle("Design");
  const facts = useResource("design");
  return [h("h1", {}, facts.value.value?.uid ?? store.design), shown([facts], () => h(Design, { facts: facts.value.value, store }))];
}

function Design({ facts, store }) {
  const model = useMemo(() => createModel(facts), []);
  const states = useResource("design/states", { since: () => ({ since: model.version }), seconds: 2, async take(now, _, stopped) {
    // a search adds rows
    if (now.rows > model.rows()) model.add(await get("design/rows", { from: model.rows() }, stopped));
    model.apply(now);
    return now;
  } });
  const outcomes = useResource("design/outcomes", {
    query: () => (states.loaded.value ? {} : null), since: () => ({ since: model.finished }),
    changes: () => states.value.value?.finished,
    take(read) {
      model.take(read);
      return true;
    },
  });
  return [
    h(About, { model }),
    h(DesignActions, { store, changes: () => JSON.stringify(states.value.value?.counts) }),
    shown([states], () => [
      h(Summary, { model }), h(Factors, { facts }), facts.search && h(Search, { model }),
      h("section", {}, h("h2", {}, "Runs"), h(Matrix, { model })), h(Failures, { model }),
      h("section", {}, h("h2", {}, "Outcomes"), shown([outcomes], () => h(Outcomes, { model }))),
      h("section", {}, h("h2", {}, "Indices and comparisons"), h(Analysis, { model }))]),
  ];
}

function About({ model }) {
  void model.revision.value;
  const { facts } = model, { sampler } = facts;
  const options = [...(sampler.n === null ? [] : [`n: ${number(sampler.n)}`]), ...sampler.options];
  const parts = [`sampler ${sampler.name}${options.length ? ` (${options.join(", ")})` : ""}`,
    `${count(model.rows(), "row")}${facts.rejected ? ` (${number(facts.rejected)} more rejected by constraints)` : ""}`,
    count(facts.repetitions, "repetition"), `seeds ${facts.seeds}`];
  const same = model.cells.length - model.status.length;
  if (same) parts.push(`${count(same, "run")} ${same === 1 ? "is" : "are"} identical to another, and executed with it`);
  return h("p", { class: "quiet" }, parts.join(" · "));
}

function Factors({ facts }) {
  const described = (one) => (one.levels ? one.levels.join(", ") : `${one.whole ? "whole numbers" : "numbers"}${one.log ? ", logarithmic" : ""}`);
  return h("details", {}, h("summary", {}, count(facts.factors.length, "factor")), table([
    { title: "Factor", value: (one) => one.name },
    { title: "Values", value: described },
    { title: "Active when", value: (one) => one.when ?? "" },
    { title: "Varies with", value: (one) => one.zipped.join(", ") },
    { title: "Group", value: (one) => one.group ?? "" },
    { title: "Sets", value: (one) => one.path ?? "a choice of the schedule" },
  ], facts.factors), facts.constraints.length > 0 && h("p", {}, "Constraints: ", facts.constraints.join("; ")),
  facts.warnings.map((warning) => h("p", { class: "quiet" }, warning)));
}

function Summary({ model }) {
  void model.revision.value;
  const { counts, seconds_per_run, seconds_left, processes, problems, not_collected } = model.summary;
  const sum = (names) => names.reduce((total, name) => total + (counts[name] ?? 0), 0);
  const total = model.status.length, finished = counts.finished ?? 0, stopped = sum(STOPPED);
  const tile = (name, value, text) => h("div", { "data-tile": name }, h("b", {}, value), h("span", {}, text));
  return [
    h("div", { class: "tiles" },
      tile("finished", `${number(finished)} of ${number(total)}`, "finished"),
      tile("running", number(counts.running ?? 0), "running"),
      tile("waiting", number(sum(["waiting", "queued"])), counts.queued ? `waiting, ${number(counts.queued)} of them queued` : "waiting"),
      tile("failed", number(sum(FAILED)), "failed"),
      counts.pruned > 0 && tile("pruned", number(counts.pruned), "pruned"),
      counts.skipped > 0 && tile("skipped", number(counts.skipped), "not to be started"),
      stopped > 0 && tile("stopped", number(stopped), "interrupted, cancelled or lost"),
      seconds_per_run !== null && tile("per-run", duration(seconds_per_run), "per run (median)"),
      // a search does not say how many runs are to come
      seconds_left > 0 && !model.facts.search && tile("left", `about ${duration(seconds_left)}`, `left, with ${number(processes)} at a time`)),
    !model.facts.search && h("progress", { max: total, value: finished, "aria-label": "Finished runs" }),
    not_collected > 0 && h("p", {}, `${count(not_collected, "finished run")} ${not_collected === 1 ? "is" : "are"} to be collected: `,
      h("code", {}, `arsenai collect ${model.facts.folder}`)),
    problems.map((problem) => h("p", { class: "design-caution" }, problem)),
  ];
}

function Failures({ model }) {
  void model.revision.value;
  const all = [...model.errors.keys()].sort((a, b) => a - b), first = (run) => model.cellsOf[run][0];
  return h("section", {}, all.length > 0 && [h("h2", {}, "What failed"), table([
    { title: "Run", value: (run) => h(RunLink, { model, cell: first(run) }) },
    { title: "State", value: (run) => h(Status, { of: model.statusOf(first(run)), look: "failed" }) },
    { title: "Error", value: (run) => h("span", { class: "design-error" }, model.errors.get(run).error) },
    { title: "Log", value: (run) => h("code", {}, model.errors.get(run).log) },
    { title: "Factors", value: (run) => h("span", { class: "design-error" }, model.values(first(run)).join(", ")) },
  ], all.slice(0, LISTED), `${count(all.length, "run")} failed${all.length > LISTED ? `, the first ${LISTED} of which are` : ":"}`)]);
}

/** Scatter plot, parallel coordinates, ranges, and the list of the runs that are selected. */
function Outcomes({ model }) {
  void model.revision.value;
  const selection = useMemo(() => createSelection(model), []), place = useSignal(0), axis = useSignal(0), selecting = useSignal(false);
  if (!model.executed().length || !model.outcomes.length) return h("p", { class: "quiet" }, model.problem ?? "No run has finished yet.");
  const chosen = () => model.outcomes[place.value] ?? model.outcomes[0], factor = model.factors[axis.value];
  const choose = (kept) => (event) => {
    kept.value = Number(event.target.value);
    selecting.value = false;
  };
  const cells = model.executed(), left = factor ? cells.length - drawable(model, factor, chosen()).length : 0;
  const within = cells.filter(selection.has), all = selection.isEmpty();
  const order = chosen().better ? `, best first (${chosen().name}: ${chosen().better} is better)` : "";
  const note = model.problem ?? (left > 0 && `${number(left)} of ${count(cells.length, "run")} ${left === 1 ? "is" : "are"} not in the scatter plot: `
    + "the factor is inactive, or the outcome has no finite value.");
  const names = (axes) => axes.map((one, i) => h("option", { value: i }, one.name));
  return h("div", {},
    h("div", { class: "controls" },
      h("label", {}, "Outcome ", h("select", { value: place.value, onchange: choose(place) }, names(model.outcomes))),
      factor && h("label", {}, "Factor ", h("select", { value: axis.value, onchange: choose(axis) }, names(model.factors))),
      h("button", { type: "button", "aria-pressed": String(selecting.value), onclick: () => { selecting.value = !selecting.value; } },
        "Select with a rectangle")),
    h("p", { class: "quiet" }, note),
    h("div", { key: `${chosen().name} ${axis.value}` },
      factor && h(Scatter, { model, selection, factor, outcome: chosen, selecting: selecting.value }),
      h(Parallel, { model, selection, outcome: chosen })),
    h(RangeInputs, { model, selection }),
    h("div", { class: "design-selected" }, h("h3", {}, all ? "All finished runs" : "Selected runs"),
      h(RunTable, { model, cells: bestFirst(within, chosen()),
        caption: `${number(within.length)} of ${count(cells.length, "finished run")}${all ? "" : " selected"}${order}` })));
}
