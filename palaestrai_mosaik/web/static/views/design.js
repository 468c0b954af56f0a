// A design: how far its runs are, what they gave, and what that says of its factors.

import { designActions } from "web/actions";
import { get, offline, watch } from "web/data";
import { fill, h, table } from "web/dom";
import { duration, number } from "web/format";
import { analysis } from "web/views/design_analysis";
import { matrix } from "web/views/design_matrix";
import { createModel, FAILED } from "web/views/design_model";
import { parallel } from "web/views/design_parallel";
import { searched } from "web/views/design_search";
import { scatter } from "web/views/design_scatter";
import { bestFirst, createSelection, rangeInputs, runLink, runTable } from "web/views/design_selection";

const STOPPED = ["interrupted", "lost", "node failed", "cancelled"];
const LISTED = 200;

export async function show(element, context) {
  const { signal, attempt } = context;
  const [facts, states] = await Promise.all([get("design", {}, signal), get("design/states", {}, signal)]);
  const model = createModel(facts);
  // (rows may have been added between the two answers)
  if (states.rows > model.rows()) model.add(await get("design/rows", { from: model.rows() }, signal));
  model.apply(states);
  const head = h("div", {}), states_ = matrix(model), failures = h("section", {}), outcomes = outcomesSection(model);
  const analysed = analysis(model, signal), actions = designActions(context);
  const said = h("p", { class: "quiet" }, about(model)), search = facts.search ? searched(model, signal) : null;
  fill(element, h("h1", {}, facts.uid), said, actions.element, head, factorTable(facts),
    search && h("section", { class: "design-search" }, h("h2", {}, "Search"), search.element), h("section", {}, h("h2", {}, "Runs"), states_.element), failures,
    h("section", {}, h("h2", {}, "Outcomes"), outcomes.element), h("section", {}, h("h2", {}, "Indices and comparisons"), analysed.element));
  signal.addEventListener("abort", () => [states_, outcomes, analysed, search].forEach((one) => one?.close()));
  states_.start();
  summarise(head, model);
  listFailures(failures, model);

  async function readOutcomes() {
    const known = model.finished;
    const read = await get("design/outcomes", known === null ? {} : { since: known }, signal);
    model.take(read);
    if (model.finished !== known) {
      outcomes.update();
      analysed.update();
    }
  }
  /** Ask for the rows that the design has and the model has not: a search adds them. */
  async function addRows(now) {
    if (now.rows <= model.rows()) return;
    model.add(await get("design/rows", { from: model.rows() }, signal));
    fill(said, about(model));
    states_.grow();
  }
  await readOutcomes();
  await search?.update();
  if (offline) return;
  watch(2, signal, async () => {
    const now = await get("design/states", { since: model.version }, signal);
    await addRows(now);
    const changed = model.apply(now);
    summarise(head, model);
    actions.update({ status: JSON.stringify(model.summary.counts) });
    if (changed.length) {
      states_.update(changed);
      listFailures(failures, model);
    }
    if (now.finished !== model.finished) await readOutcomes();
    await search?.update();
  }, attempt);
}

function about(model) {
  const { facts } = model, { sampler } = facts;
  const options = [...(sampler.n === null ? [] : [`n: ${number(sampler.n)}`]), ...sampler.options];
  const parts = [`sampler ${sampler.name}${options.length ? ` (${options.join(", ")})` : ""}`,
    `${number(model.rows())} rows${facts.rejected ? ` (${number(facts.rejected)} more rejected by constraints)` : ""}`,
    `${number(facts.repetitions)} ${facts.repetitions === 1 ? "repetition" : "repetitions"}`, `seeds ${facts.seeds}`];
  const same = model.cells.length - model.status.length;
  if (same) parts.push(`${number(same)} runs are identical to another, and executed with it`);
  return parts.join(" · ");
}

function factorTable(facts) {
  const described = (one) => (one.levels ? one.levels.join(", ") : `${one.whole ? "whole numbers" : "numbers"}${one.log ? ", logarithmic" : ""}`);
  return h("details", {}, h("summary", {}, `${number(facts.factors.length)} factors`), table([
    { title: "Factor", value: (one) => one.name },
    { title: "Values", value: described },
    { title: "Active when", value: (one) => one.when ?? "" },
    { title: "Varies with", value: (one) => one.zipped.join(", ") },
    { title: "Group", value: (one) => one.group ?? "" },
    { title: "Sets", value: (one) => one.path ?? "a choice of the schedule" },
  ], facts.factors), facts.constraints.length > 0 && h("p", {}, "Constraints: ", facts.constraints.join("; ")),
  facts.warnings.map((warning) => h("p", { class: "quiet" }, warning)));
}

function summarise(head, model) {
  const { counts, seconds_per_run, seconds_left, processes, problems, not_collected } = model.summary;
  const sum = (names) => names.reduce((total, name) => total + (counts[name] ?? 0), 0);
  const total = model.status.length, finished = counts.finished ?? 0, stopped = sum(STOPPED);
  const tile = (name, value, text) => h("div", { "data-tile": name }, h("b", {}, value), h("span", {}, text));
  fill(head, h("div", { class: "tiles" },
    tile("finished", `${number(finished)} of ${number(total)}`, "finished"),
    tile("running", number(counts.running ?? 0), "running"),
    tile("waiting", number(sum(["waiting", "queued"])), counts.queued ? `waiting, ${number(counts.queued)} of them queued` : "waiting"),
    tile("failed", number(sum(FAILED)), "failed"),
    counts.pruned > 0 && tile("pruned", number(counts.pruned), "pruned"),
    counts.skipped > 0 && tile("skipped", number(counts.skipped), "not to be started"),
    stopped > 0 && tile("stopped", number(stopped), "interrupted, cancelled or lost"),
    seconds_per_run !== null && tile("per-run", duration(seconds_per_run), "per run (median)"),
    // (a search does not say how many runs are to come)
    seconds_left > 0 && !model.facts.search && tile("left", `about ${duration(seconds_left)}`, `left, with ${number(processes)} at a time`)),
  !model.facts.search && h("progress", { max: total, value: finished, "aria-label": "Finished runs" }),
  not_collected > 0 && h("p", {}, `${number(not_collected)} finished runs are to be collected: `, h("code", {}, `arsenai collect ${model.facts.folder}`)),
  problems.map((problem) => h("p", { class: "design-caution" }, problem)));
}

function listFailures(section, model) {
  const all = [...model.errors.keys()].sort((a, b) => a - b);
  fill(section, all.length > 0 && [h("h2", {}, "What failed"), table([
    { title: "Run", value: (run) => runLink(model, model.cellsOf[run][0]) },
    { title: "State", value: (run) => h("span", { class: "status failed" }, model.statusOf(model.cellsOf[run][0])) },
    { title: "Error", value: (run) => h("span", { class: "design-error" }, model.errors.get(run).error) },
    { title: "Log", value: (run) => h("code", {}, model.errors.get(run).log) },
    { title: "Factors", value: (run) => h("span", { class: "design-error" }, model.values(model.cellsOf[run][0]).join(", ")) },
  ], all.slice(0, LISTED), `${number(all.length)} runs failed${all.length > LISTED ? `, the first ${LISTED} of which are` : ":"}`)]);
}

/** Scatter plot, parallel coordinates, ranges, and the list of the runs that are selected. */
function outcomesSection(model) {
  const selection = createSelection(model);
  const controls = h("div", { class: "controls" }), figures = h("div", {}), note = h("p", { class: "quiet" }), list = h("div", { class: "design-selected" });
  const inputs = h("div", {});
  const element = h("div", {}, controls, note, figures, inputs, list);
  const outcome = h("select", { onchange: draw }), factor = h("select", { onchange: draw });
  const select = h("button", { type: "button", "aria-pressed": "false", onclick: () => toggle(select.getAttribute("aria-pressed") !== "true") },
    "Select with a rectangle");
  let points = null, lines = null, names = null, ranges = null;
  const chosen = () => model.outcomes[Number(outcome.value)] ?? model.outcomes[0];

  function toggle(on) {
    select.setAttribute("aria-pressed", String(on));
    points?.select(on);
  }
  function draw() {
    close();
    toggle(false);
    const axis = model.factors[Number(factor.value)];
    points = axis && scatter(model, selection, axis, chosen);
    lines = parallel(model, selection, chosen);
    fill(figures, points?.element, lines.element);
    points?.update();
    lines.update();
    describe();
  }
  function describe() {
    const cells = model.executed(), left = points?.left() ?? 0;
    fill(note, left > 0 && `${number(left)} of ${number(cells.length)} runs are not in the scatter plot: the factor is inactive, or the outcome has no finite value.`);
    const within = cells.filter(selection.has), best = bestFirst(within, chosen());
    const order = chosen().better ? `, best first (${chosen().name}: ${chosen().better} is better)` : "";
    fill(list, h("h3", {}, selection.isEmpty() ? "All finished runs" : "Selected runs"),
      runTable(model, best, `${number(within.length)} of ${number(cells.length)} finished runs${selection.isEmpty() ? "" : " selected"}${order}`));
  }
  selection.listen(() => {
    points?.refresh();
    points?.follow();
    lines?.follow();
    describe();
  });
  function update() {
    if (!model.executed().length || !model.outcomes.length) {
      fill(note, model.problem ?? "No run has finished yet.");
      return;
    }
    const now = JSON.stringify(model.outcomes.map((one) => one.name));
    if (now !== names) {
      names = now;
      fill(outcome, model.outcomes.map((one, i) => h("option", { value: i }, one.name)));
      fill(factor, model.factors.map((one, i) => h("option", { value: i }, one.name)));
      fill(controls, h("label", {}, "Outcome ", outcome), model.factors.length > 0 && h("label", {}, "Factor ", factor), select);
      ranges = rangeInputs(model, selection);
      fill(inputs, ranges.element);
      draw();
    } else {
      points?.refresh();
      lines.refresh();
      ranges.update();
      describe();
    }
    if (model.problem) fill(note, model.problem);
  }
  function close() {
    points?.close();
    lines?.close();
  }
  return { element, update, close };
}
