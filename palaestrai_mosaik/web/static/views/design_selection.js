// Which runs are selected: those within ranges of factors and outcomes, which charts and inputs set.

import { signal, useSignal } from "@preact/signals";
import { h } from "preact";
import { has } from "web/data";
import { number } from "web/format";
import { Entry, table } from "web/page";
import { extent, text } from "web/views/design_model";

/** rows of a list that are shown at first, and more each time they are asked for */
const STEP = 50;

/** Make the selection of a model; its ranges are a signal. */
export function createSelection(model) {
  const ranges = signal(new Map());
  return {
    /** The intervals of an axis, [] where all of it is meant. */
    get: (key) => ranges.value.get(key) ?? [],
    /** Set the intervals of an axis: [[low, high], ...]. */
    set(key, intervals) {
      if (JSON.stringify(intervals) === JSON.stringify(ranges.peek().get(key) ?? [])) return;
      ranges.value = new Map([...ranges.peek()].filter(([one]) => one !== key).concat(intervals.length ? [[key, intervals]] : []));
    },
    clear() {
      ranges.value = new Map();
    },
    isEmpty: () => ranges.value.size === 0,
    /** Whether a cell lies within all ranges; a value that is missing lies in none. */
    has(cell) {
      return model.axes().every((axis) => {
        const intervals = ranges.value.get(axis.key), value = intervals && axis.value(cell);
        return !intervals || intervals.some(([low, high]) => value >= low && value <= high);
      });
    },
  };
}

/** A button that shows more of a list of which `shown` (a signal) are shown; none where all are. */
export function More({ shown, of }) {
  const left = of - shown.value;
  if (left <= 0) return null;
  return h("p", {}, h("button", { type: "button", onclick: () => { shown.value += STEP; } },
    left > STEP ? `Show ${STEP} more of ${number(left)}` : `Show the other ${number(left)}`));
}

/** How much of a list is shown at first: a signal for {@link More}. */
export function useShown() {
  return useSignal(STEP);
}

/** The runs of some cells as a table with their factors and outcomes; `columns` come after the run's name. */
export function RunTable({ model, cells, caption, columns = [] }) {
  const shown = useShown();
  return h("div", {}, table([
    { title: "Row", number: true, value: (cell) => model.row(cell) },
    model.facts.repetitions > 1 && { title: "Repetition", number: true, value: (cell) => model.repetition(cell) },
    { title: "Run", value: (cell) => h(RunLink, { model, cell }) },
    ...columns,
    ...model.factors.map((axis) => ({ title: axis.name, number: !axis.levels, value: (cell) => text(axis, axis.value(cell)) })),
    ...model.outcomes.map((axis) => ({ title: axis.name, number: true, value: (cell) => number(axis.value(cell), 6) })),
  ].filter(Boolean), cells.slice(0, shown.value), caption), h(More, { shown, of: cells.length }));
}

/** The uid of a cell's run, or another name, as a link where the store has it. */
export function RunLink({ model, cell, name = model.uidOf(cell) }) {
  const instance = model.instanceOf(cell);
  return instance === null || !has(`run/${instance}`) ? name : h("a", { href: `#/run/${encodeURIComponent(instance)}` }, name);
}

/** Cells with the best value of the outcome first, those without a value last; in order where no direction is better. */
export function bestFirst(cells, outcome) {
  if (!outcome?.better) return cells;
  const sign = outcome.better === "lower" ? 1 : -1;
  const place = (cell) => (Number.isNaN(outcome.value(cell)) ? Infinity : sign * outcome.value(cell));
  return [...cells].sort((a, b) => (place(a) === place(b) ? a - b : place(a) - place(b)));
}

/** Inputs for the ends of each axis: what brushes do, for the keyboard. */
export function RangeInputs({ model, selection }) {
  const cells = model.executed();
  return h("details", {}, h("summary", {}, "Select runs by ranges"),
    h("div", { class: "design-ranges" }, model.axes().map((axis) => h(Range, { key: axis.key, axis, cells, selection }))),
    h("p", {}, h("button", { type: "button", disabled: selection.isEmpty(), onclick: selection.clear }, "Clear the selection")));
}

function Range({ axis, cells, selection }) {
  const intervals = selection.get(axis.key), ends = extent(axis, cells);
  const own = intervals.length ? [Math.min(...intervals.map(([low]) => low)), Math.max(...intervals.map(([, high]) => high))] : [null, null];
  const outer = axis.levels ? [0, axis.levels.length - 1] : [-Number.MAX_VALUE, Number.MAX_VALUE];
  function change(k, entered) {
    const [low, high] = own.map((end, i) => (i !== k ? (shownEnd(axis, end, i) === "" ? null : end) : entered === "" ? null : Number(entered)));
    selection.set(axis.key, low === null && high === null ? [] : [[low ?? outer[0], high ?? outer[1]]]);
  }
  return h("fieldset", {}, h("legend", {}, axis.name, axis.better ? ` (${axis.better} is better)` : ""), ["lowest", "highest"].map((end, k) => {
    const name = `${end} ${axis.name}`, value = shownEnd(axis, own[k], k);
    const common = { "aria-label": name, title: name, value };
    if (!axis.levels) return h(Entry, { ...common, type: "number", step: "any", placeholder: number(ends[k], 4), entered: (typed) => change(k, typed) });
    return h("select", { ...common, onchange: (event) => change(k, event.target.value) },
      h("option", { value: "" }, k ? "to the last" : "from the first"), axis.levels.map((level, i) => h("option", { value: i }, level)));
  }));
}

/** What an input shows of an end: nothing where the range is open. */
function shownEnd(axis, value, k) {
  if (value === null || Math.abs(value) === Number.MAX_VALUE) return "";
  if (!axis.levels) return String(value);
  return String(Math.min(axis.levels.length - 1, Math.max(0, k ? Math.floor(value) : Math.ceil(value))));
}
