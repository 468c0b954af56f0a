// A design as the page keeps it: its axes (factors and outcomes), its runs and their states.

import { signal } from "@preact/signals";
import { number } from "web/format";

/** status -> [sign, class of its colour]; the sign tells states apart without colours */
export const SIGNS = {
  waiting: ["", "waiting"], queued: ["…", "queued"], running: ["▸", "running"], finished: ["✓", "finished"], failed: ["✕", "failed"],
  interrupted: ["‖", "stopped"], "timed out": ["T", "failed"], "out of memory": ["M", "failed"], "node failed": ["N", "stopped"],
  cancelled: ["C", "stopped"], lost: ["?", "stopped"], pruned: ["P", "pruned"], skipped: ["–", "waiting"],
};
/** what `arsenai resume` counts as failed */
export const FAILED = ["failed", "timed out", "out of memory"];

const whole = (value) => (value === null || value === undefined ? NaN : value);

/**
 * Make the model from the resource `design`.
 * A *cell* is a repetition of a row, numbered row by row; several cells may share a run, if their documents are identical.
 */
export function createModel(facts) {
  const { repetitions, statuses } = facts;
  const cells = [], cellsOf = [], uids = [];
  const factors = facts.factors.map((factor, i) => {
    const column = [];
    // (a level that is inactive is -1, as it is drawn)
    const value = (cell) => column[Math.floor(cell / repetitions)];
    return { ...factor, key: `f${i}`, kind: "factor", column, value, inactive: false };
  });
  /** A value of the model as it is now. */
  const now = (value) => {
    void model.revision.value;
    return value;
  };
  const model = {
    facts, cells, cellsOf, factors, outcomes: [], version: 0, finished: null, problem: null, summary: null,
    status: [], instance: [], errors: new Map(),
    /** changes whenever the model does: a component that reads states, rows or outcomes is drawn again */
    revision: signal(0),

    /** How many rows the design has. */
    rows: () => now(cells.length / repetitions),

    /** Add rows, as the resource `design/rows` has them. */
    add(rows) {
      for (const uid of rows.runs.uid) {
        uids.push(uid);
        cellsOf.push([]);
        model.status.push(0);
        model.instance.push(null);
      }
      for (const run of rows.cells) cellsOf[run].push(cells.push(run) - 1);
      factors.forEach((factor, i) => {
        const added = Array.from(rows.values[i], whole);
        for (const one of added) factor.column.push(one);
        factor.inactive ||= added.some((one) => (factor.levels ? one < 0 : Number.isNaN(one)));
      });
      model.revision.value += 1;
    },

    /** Take what the resource `design/states` says. */
    apply(states) {
      const { run, status, instance, errors } = states.changed;
      // (0 in `status` is "waiting": what is not known yet)
      Array.from(run).forEach((one, i) => {
        model.status[one] = status[i];
        model.instance[one] = instance[i];
        model.errors.delete(one);
      });
      for (const [one, error, log] of errors) model.errors.set(one, { error, log });
      model.version = states.version;
      model.summary = states;
      model.revision.value += 1;
    },

    /** Take what the resource `design/outcomes` says. */
    take(read) {
      if (read.unchanged) return;
      model.finished = read.finished;
      model.problem = read.problem;
      model.outcomes = read.outcomes.map((outcome, i) => {
        const column = Float64Array.from(outcome.values, whole);
        return { ...outcome, key: `o${i}`, kind: "outcome", levels: null, log: false, value: (cell) => column[cell] ?? NaN };
      });
      model.revision.value += 1;
    },

    axes: () => now([...factors, ...model.outcomes]),
    row: (cell) => Math.floor(cell / repetitions),
    repetition: (cell) => cell % repetitions,
    statusOf: (cell) => now(statuses[model.status[cells[cell]]]),
    instanceOf: (cell) => now(model.instance[cells[cell]]),
    uidOf: (cell) => uids[cells[cell]],
    /** Whether the cell's run is executed for another row, whose document is the same. */
    isDuplicate: (cell) => cellsOf[cells[cell]][0] !== cell,
    /** The cells whose runs have finished and are in the store. */
    executed: () => now(cells.flatMap((run, cell) => (statuses[model.status[run]] === "finished" && model.instance[run] !== null ? [cell] : []))),

    name: (cell) => `row ${model.row(cell)}${repetitions > 1 ? `, repetition ${model.repetition(cell)}` : ""}`,
    values: (cell) => factors.map((factor) => `${factor.name} = ${text(factor, factor.value(cell))}`),
  };
  model.add({ cells: facts.cells, runs: facts.runs, values: facts.factors.map((factor) => factor.values) });
  return model;
}

/** A value of an axis as text: its level, or a number. */
export function text(axis, value, digits = 5) {
  if (axis.levels) return value < 0 ? "inactive" : axis.levels[value];
  if (Number.isNaN(value)) return axis.kind === "factor" ? "inactive" : "none";
  return number(value, digits);
}

/** The smallest and the largest value of an axis among some cells; of levels, whole numbers around their places. */
export function extent(axis, cells) {
  if (axis.levels) return [axis.inactive ? -2 : -1, axis.levels.length];
  let low = Infinity, high = -Infinity;
  for (const cell of cells) {
    const value = axis.value(cell);
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return axis.log ? [1, 10] : [0, 1];
  if (low === high) return axis.log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  return [low, high];
}
